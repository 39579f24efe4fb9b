// SPDX-License-Identifier: Apache-2.0
// Arrays by DLPack's C functions, which call no Python code.
#ifndef VOXCONV_PYTHON_BINDINGS_EXCHANGE_H_
#define VOXCONV_PYTHON_BINDINGS_EXCHANGE_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace nb = nanobind;

namespace voxconv::python {

// An array as a framework describes it. Owns nothing.
struct ArrayView {
  static constexpr int kMaxRank = 8;

  void* data = nullptr;
  int ndim = 0;
  std::array<int64_t, kMaxRank> shape{}, stride{};  // in elements
  nb::dlpack::dtype dtype{};
  int device_type = 0, device_index = 0;  // as DLPack numbers them
};

struct ExchangeApi;  // DLPack's table of functions

// The functions of one framework: `__dlpack_c_exchange_api__` of DLPack 1.3, which PyTorch has from
// version 2.10 on. All of them need the GIL.
class Exchange {
 public:
  // Of the object's type; empty where it has none, or has them from another class than the one that
  // defines them. O(1), without a call into Python for a type that was seen before.
  static std::optional<Exchange> Of(nb::handle object);
  // PyTorch's, if the process has loaded it.
  static std::optional<Exchange> OfTorch();

  // The object's memory; empty for arrays that DLPack cannot describe and for more than kMaxRank
  // axes. Valid while the object lives and is not resized. Orders nothing on the device.
  std::optional<ArrayView> View(nb::handle object) const;
  // The framework's current stream on the device; empty if it does not know the device.
  std::optional<uintptr_t> CurrentStream(int device_type, int device_index) const;
  // A new array of the framework, uninitialised and contiguous, in memory of the framework's own
  // allocator, which `view` describes. Throws MemoryError with the framework's message.
  nb::object New(const std::vector<int64_t>& shape, nb::dlpack::dtype dtype, int device_type,
                 int device_index, ArrayView& view) const;

 private:
  explicit Exchange(const ExchangeApi* api) : api_(api) {}
  const ExchangeApi* api_;
};

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_EXCHANGE_H_
