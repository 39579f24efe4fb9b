// SPDX-License-Identifier: Apache-2.0
// y = x W + bias for few output channels, such as a segmentation head's.
#ifndef VOXCONV_BACKENDS_CUDA_NARROW_LINEAR_H_
#define VOXCONV_BACKENDS_CUDA_NARROW_LINEAR_H_

#include "absl/status/status.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/tensor.h"

namespace voxconv {

// Whether NarrowLinear takes the product. It takes f16 and bf16, at most 64 output channels, and
// weights that fit in shared memory, from compute capability 8.0 on. The rows of `x` must be whole
// vectors of 16 bytes, and `y` must be at a multiple of 4 bytes. cuBLASLt has no fast kernel for
// output rows that are not whole vectors. It also rounds sums to 16 bits before it can add a bias.
bool TakesNarrowLinear(const ConstTensorView& x, const ConstTensorView& weights,
                       const TensorView& y, const ExecutionContext& context);

// x [N, c_in], weights [c_in, c_out] and y [N, c_out] have one dtype. `bias` is [c_out] f32 or
// null. All are in device memory. Sums are f32, in a fixed order, and rounded once. Queued on the
// context's stream; does not synchronise it. O(N c_in c_out). Returns the error of the launch.
absl::Status NarrowLinear(const ConstTensorView& x, const ConstTensorView& weights,
                          const float* bias, const TensorView& y, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_NARROW_LINEAR_H_
