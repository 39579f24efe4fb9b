// SPDX-License-Identifier: Apache-2.0
// Transposed weights, which the input gradient of a convolution reads.
#ifndef VOXCONV_BACKENDS_CUDA_TRANSPOSE_WEIGHTS_H_
#define VOXCONV_BACKENDS_CUDA_TRANSPOSE_WEIGHTS_H_

#include "absl/status/status.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/tensor.h"

namespace voxconv {

// See TensorOps::TransposeWeights. The arguments must have been checked (core/tensor_checks.h). One
// launch. O(elements). Returns the error of the launch.
absl::Status CudaTransposeWeights(const ConstTensorView& weights, int num_offsets, bool reversed,
                                  const TensorView& transposed, const ExecutionContext& context);

// Writes the transposed weights as [K, columns, padded_rows], rounded to tf32 (to nearest, ties
// away from zero). If `remainders`, they are right operands of split products (SplitRightToTf32 in
// tensor_core.cuh): as many matrices follow, which hold what the rounding took away. `weights` is
// [K * rows, columns] in f32. Elements past `rows` become 0. Both arrays lie in device memory. One
// launch. O(elements). Returns the error of the launch.
absl::Status CudaTransposeToTf32(const float* weights, int num_offsets, int64_t rows,
                                 int64_t columns, int64_t padded_rows, bool remainders,
                                 float* transposed, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_TRANSPOSE_WEIGHTS_H_
