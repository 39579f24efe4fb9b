// SPDX-License-Identifier: Apache-2.0
// Outputs of whole layers on the host, and how far they are apart. Layers have up to 10^8 elements,
// so that outputs stay as they are stored, and threads compare them.
#ifndef VOXCONV_TUNE_HOST_OUTPUT_H_
#define VOXCONV_TUNE_HOST_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "voxconv/core/tensor.h"

namespace voxconv::tune {

// The elements of a tensor, as they are stored.
class HostOutput {
 public:
  // Copies the tensor, in the memory of the copy before if that is large enough. Synchronises the
  // stream. Errors of Backend::Copy.
  absl::Status Copy(const Tensor& tensor, const ExecutionContext& context);

  int64_t size() const { return size_; }  // elements
  DType dtype() const { return dtype_; }
  const void* data() const { return bytes_.get(); }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  int64_t capacity_ = 0;
  int64_t size_ = 0;
  DType dtype_ = DType::kF32;
};

// reference::RelativeError of the stored values: the norm of the difference over that of
// `expected`. Infinite if the outputs differ in size or dtype, or hold a value that is not finite.
double RelativeError(const HostOutput& output, const HostOutput& expected);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_HOST_OUTPUT_H_
