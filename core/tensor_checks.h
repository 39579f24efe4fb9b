// SPDX-License-Identifier: Apache-2.0
// The checks of TensorOps' arguments. Every implementation calls them, so that all refuse the same
// arguments in the same words. They return kInvalidArgument. Each message names the operator, the
// argument, its value and what is allowed. O(1). They queue no work.
#ifndef VOXCONV_CORE_TENSOR_CHECKS_H_
#define VOXCONV_CORE_TENSOR_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/tensor.h"
#include "voxconv/core/tensor_ops.h"

namespace voxconv {

// The tensors of one call, which have one dtype and lie in one backend's memory.
class TensorChecker {
 public:
  TensorChecker(DType dtype, const Backend& backend) : dtype_(dtype), backend_(backend) {}

  // CheckTensor. A backend in host memory takes only f32.
  absl::Status Check(absl::string_view name, const ConstTensorView& tensor, int64_t rows,
                     int64_t channels) const;

 private:
  DType dtype_;
  const Backend& backend_;
};

// Refuses a precision that is not stored as `dtype`. `op` is the operator's name.
absl::Status CheckPrecision(absl::string_view op, Precision precision, DType dtype);

// Each takes the arguments of the operator of its name, and the backend whose memory the tensors
// must be in. A backend in host memory takes only f32.
absl::Status CheckScaleShift(const ConstTensorView& x, const TensorView& y, const Backend& backend);
absl::Status CheckConvert(const ConstTensorView& x, const TensorView& y, const Backend& backend);
absl::Status CheckAdd(const ConstTensorView& a, const ConstTensorView& b, const TensorView& y,
                      const Backend& backend);
absl::Status CheckConcat(const ConstTensorView& a, const ConstTensorView& b, const TensorView& y,
                         const Backend& backend);
absl::Status CheckLinear(const ConstTensorView& x, const ConstTensorView& weights,
                         Precision precision, const TensorView& y, const Backend& backend);
absl::Status CheckTransposeWeights(const ConstTensorView& weights, int num_offsets,
                                   const TensorView& transposed, const Backend& backend);
absl::Status CheckWeightGradient(const KernelMap& map, const ConstTensorView& x,
                                 const ConstTensorView& dy, Precision precision,
                                 const TensorView& gradient, const Backend& backend);
absl::Status CheckPool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                       const TensorView& y, const int32_t* switches, const Backend& backend);
absl::Status CheckUnpool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                         const int32_t* switches, const TensorView& y, const Backend& backend);
// The same over a map of any form.
absl::Status CheckPoolTensors(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                              const TensorView& y, const int32_t* switches, const Backend& backend);
absl::Status CheckUnpoolTensors(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                                const int32_t* switches, const TensorView& y,
                                const Backend& backend);
absl::Status CheckGlobalPool(const CoordinateSet& voxels, PoolMode mode, const ConstTensorView& x,
                             const TensorView& y, const Backend& backend);

}  // namespace voxconv

#endif  // VOXCONV_CORE_TENSOR_CHECKS_H_
