// What every implementation of TensorOps refuses, in one wording: each message names the argument,
// its value and what is allowed.
#ifndef VOXCONV_CORE_TENSOR_CHECKS_H_
#define VOXCONV_CORE_TENSOR_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/kernel_map.h"
#include "core/tensor.h"
#include "core/tensor_ops.h"

namespace voxconv {

// All take the arguments of the operator and the backend they are to be in the memory of. f32 and
// tf32 are one dtype here; the CPU takes no other.
absl::Status CheckScaleShift(const TensorView& x, const TensorView& y, BackendKind backend);
absl::Status CheckConvert(const TensorView& x, const TensorView& y, BackendKind backend);
absl::Status CheckAdd(const TensorView& a, const TensorView& b, const TensorView& y,
                      BackendKind backend);
absl::Status CheckConcat(const TensorView& a, const TensorView& b, const TensorView& y,
                         BackendKind backend);
absl::Status CheckLinear(const TensorView& x, const TensorView& weights, const TensorView& y,
                         BackendKind backend);
absl::Status CheckPool(const KernelMap& map, PoolMode mode, const TensorView& x,
                       const TensorView& y, const int32_t* switches, BackendKind backend);
absl::Status CheckUnpool(const KernelMap& map, PoolMode mode, const TensorView& x,
                         const int32_t* switches, const TensorView& y, BackendKind backend);
absl::Status CheckGlobalPool(int64_t rows, PoolMode mode, const TensorView& x, const TensorView& y,
                             BackendKind backend);
// A batch sample found among the coordinates; `samples`: the rows of GlobalPool's y.
absl::Status CheckSample(int64_t sample, int64_t samples);

}  // namespace voxconv

#endif  // VOXCONV_CORE_TENSOR_CHECKS_H_
