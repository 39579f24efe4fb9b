// Owned memory of a backend.
#ifndef VOXCONV_CORE_BUFFER_H_
#define VOXCONV_CORE_BUFFER_H_

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/types/span.h"
#include "core/check.h"
#include "core/types.h"

namespace voxconv {

// Bytes owned by one holder, aligned to at least 64; move-only. Made by Backend::Allocate and
// returned to that backend on destruction, so a Buffer must not outlive its Backend. On a backend
// with stream-ordered memory the release is ordered after the work queued on the allocating
// stream.
class Buffer {
 public:
  // Returns memory to where it came from.
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

// `size` elements of T in a Buffer. Trivially copyable T only: no constructor is ever run.
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
  // Valid in `space()`; dereference on the host only where that is kHost.
  T* data() { return static_cast<T*>(buffer_.data()); }
  const T* data() const { return static_cast<const T*>(buffer_.data()); }

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

// A read-only array with any number of owners: layouts of one map share its table.
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
  // Empty host memory where there is none.
  const Array<T>& array() const {
    static const Array<T> kNone;
    return array_ == nullptr ? kNone : *array_;
  }

 private:
  std::shared_ptr<const Array<T>> array_;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_BUFFER_H_
