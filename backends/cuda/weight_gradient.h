// SPDX-License-Identifier: Apache-2.0
// The weight gradient that serves every dataflow on CUDA (TensorOps::WeightGradient).
#ifndef VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_H_
#define VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_H_

#include "absl/status/status.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/tensor.h"

namespace voxconv {

// See TensorOps::WeightGradient. The arguments must have been checked (core/tensor_checks.h). Takes
// at most 64 MiB of temporary memory: 16 for gathered rows, 16 for the f32 sums of a gradient that
// is stored in 16 bits, and 32 for a product's workspace. Two launches for each block of gathered
// rows, and one product for each offset and block. Deterministic.
absl::Status CudaWeightGradient(const KernelMap& map, const ConstTensorView& x,
                                const ConstTensorView& dy, Precision precision,
                                const TensorView& gradient, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_H_
