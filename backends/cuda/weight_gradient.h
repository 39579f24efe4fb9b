// SPDX-License-Identifier: Apache-2.0
// The weight gradient that serves every dataflow on CUDA (TensorOps::WeightGradient).
#ifndef VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_H_
#define VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_H_

#include "absl/status/status.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/tensor.h"

namespace voxconv {

// See TensorOps::WeightGradient (H-CNN, Equation 7). The arguments must have been checked
// (core/tensor_checks.h). Deterministic. Takes at most 64 MiB of temporary memory. Calls
// MmaWeightGradient where HasMmaWeightGradient is true (weight_gradient_mma.h). Otherwise it
// gathers rows and calls cuBLASLt. The memory is then 16 MiB for gathered rows, 16 for
// the f32 sums of a gradient that is stored in 16 bits, and 32 for a product's workspace. There are
// two launches for each block of gathered rows, and one product for each offset and block.
absl::Status CudaWeightGradient(const KernelMap& map, const ConstTensorView& x,
                                const ConstTensorView& dy, Precision precision,
                                const TensorView& gradient, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_H_
