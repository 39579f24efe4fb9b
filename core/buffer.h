// SPDX-License-Identifier: Apache-2.0
// Owned memory of a backend.
#ifndef VOXCONV_CORE_BUFFER_H_
#define VOXCONV_CORE_BUFFER_H_

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/types/span.h"
#include "voxconv/core/check.h"
#include "voxconv/core/types.h"

namespace voxconv {

// Owns bytes of a backend's memory. Move-only. Backend::Allocate makes it. The destructor gives the
// bytes back to that backend, so that a Buffer must not outlive it. On an asynchronous backend the
// bytes are used again only after the work that is queued by then on the stream that allocated
// them. The destructor does not synchronise. Addresses are multiples of 64 at least.
class Buffer {
 public:
  // Takes memory back where it came from. Must outlive its buffers.
  class Deleter {
   public:
    virtual ~Deleter() = default;
    virtual void Free(void* data, int64_t bytes) = 0;
  };

  Buffer() = default;
  Buffer(void* data, int64_t bytes, MemorySpace space, Deleter* deleter)
      : data_(data), bytes_(bytes), space_(space), deleter_(deleter) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(space_, other.space_);
    std::swap(deleter_, other.deleter_);
    return *this;
  }
  ~Buffer() {
    if (deleter_ != nullptr && data_ != nullptr) deleter_->Free(data_, bytes_);
  }

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  MemorySpace space() const { return space_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  MemorySpace space_ = MemorySpace::kHost;
  Deleter* deleter_ = nullptr;
};

// `size` elements of T in a Buffer. Move-only. T must be trivially copyable, because no constructor
// of T is run. Elements of a new array are uninitialised.
template <typename T>
class Array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Array() = default;
  Array(Buffer buffer, int64_t size) : buffer_(std::move(buffer)), size_(size) {
    VOXCONV_CHECK(buffer_.bytes() >= size * static_cast<int64_t>(sizeof(T)));
  }

  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }
  MemorySpace space() const { return buffer_.space(); }
  // An address in space(). The host may dereference it only if that is kHost.
  T* data() { return static_cast<T*>(buffer_.data()); }
  const T* data() const { return static_cast<const T*>(buffer_.data()); }

  // Leaves the first `size` elements, of at most as many as there are (checked). The memory stays.
  void Shrink(int64_t size) {
    VOXCONV_CHECK(size >= 0 && size <= size_);
    size_ = size;
  }

  // Host memory only (checked).
  absl::Span<T> host() {
    VOXCONV_CHECK(space() == MemorySpace::kHost);
    return {data(), static_cast<size_t>(size_)};
  }
  absl::Span<const T> host() const {
    VOXCONV_CHECK(space() == MemorySpace::kHost);
    return {data(), static_cast<size_t>(size_)};
  }

 private:
  Buffer buffer_;
  int64_t size_ = 0;
};

// A read-only array that any number of owners share, such as copies of a kernel map. The last owner
// frees it.
template <typename T>
class SharedArray {
 public:
  SharedArray() = default;
  SharedArray(Array<T> array)  // NOLINT(google-explicit-constructor): a change of ownership only
      : array_(std::make_shared<const Array<T>>(std::move(array))) {}

  bool empty() const { return size() == 0; }
  int64_t size() const { return array_ == nullptr ? 0 : array_->size(); }
  int64_t bytes() const { return array_ == nullptr ? 0 : array_->bytes(); }
  const T* data() const { return array_ == nullptr ? nullptr : array_->data(); }
  // The array. An empty one in host memory if there is none.
  const Array<T>& array() const {
    static const Array<T> kNone;
    return array_ == nullptr ? kNone : *array_;
  }

 private:
  std::shared_ptr<const Array<T>> array_;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_BUFFER_H_
