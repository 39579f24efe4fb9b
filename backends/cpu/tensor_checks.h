// Refusals shared by the dense operators: every message names the argument, its value and what is
// allowed.
#ifndef VOXCONV_BACKENDS_CPU_TENSOR_CHECKS_H_
#define VOXCONV_BACKENDS_CPU_TENSOR_CHECKS_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/tensor.h"

namespace voxconv {

inline absl::Status CheckTensor(absl::string_view name, const TensorView& tensor, int64_t rows,
                                int64_t channels) {
  if (tensor.rows != rows || tensor.channels != channels) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": shape [", tensor.rows, ", ",
                                                   tensor.channels, "]; it must be [", rows, ", ",
                                                   channels, "]"));
  }
  if (SizeOf(tensor.dtype) != sizeof(float)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": dtype ", ToString(tensor.dtype), "; dense operators take f32"));
  }
  if (tensor.space != MemorySpace::kHost) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": device memory; the CPU backend takes host memory"));
  }
  return absl::OkStatus();
}

// Rows of `channels` floats that make one task: small enough for the L2 cache, large enough to
// amortise its scheduling.
inline int64_t RowsPerTask(int64_t channels) {
  constexpr int64_t kFloatsPerTask = 1 << 15;
  return std::max<int64_t>(1, kFloatsPerTask / std::max<int64_t>(1, channels));
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_TENSOR_CHECKS_H_
