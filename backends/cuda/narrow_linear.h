// y = x W + bias for few output channels, such as a segmentation head's.
#ifndef VOXCONV_BACKENDS_CUDA_NARROW_LINEAR_H_
#define VOXCONV_BACKENDS_CUDA_NARROW_LINEAR_H_

#include "absl/status/status.h"
#include "core/backend.h"
#include "core/tensor.h"

namespace voxconv {

// Whether NarrowLinear takes it: f16 and bf16, at most 64 output channels, weights that fit into
// shared memory, rows of `x` in whole vectors of 16 bytes, `y` at a multiple of 4, from compute
// capability 8.0 on. cuBLASLt has no fast kernel where rows of the output are not whole vectors,
// and rounds sums to 16 bits before a bias can be added.
bool TakesNarrowLinear(const TensorView& x, const TensorView& weights, const TensorView& y,
                       const ExecutionContext& context);

// x [N, c_in], weights [c_in, c_out], y [N, c_out] of one dtype, `bias` [c_out] f32 or null, all in
// device memory. Sums in f32, in a fixed order, rounded once. Queued on the context's stream, which
// it does not wait for. O(N c_in c_out). The error of the launch.
absl::Status NarrowLinear(const TensorView& x, const TensorView& weights, const float* bias,
                          const TensorView& y, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_NARROW_LINEAR_H_
