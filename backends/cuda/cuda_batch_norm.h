// SPDX-License-Identifier: Apache-2.0
// Batch norm in training on CUDA. core/training_ops.h says what the functions do.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_BATCH_NORM_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_BATCH_NORM_H_

#include "absl/status/status.h"
#include "voxconv/core/training_ops.h"

namespace voxconv {

// Moments and sums take two launches, read each matrix once, and take at most 9 KiB of temporary
// memory for each channel. The others take one launch.
absl::Status CudaChannelMoments(const ConstTensorView& x, float* mean, float* deviation,
                                const ExecutionContext& context);
absl::Status CudaSumsOfMoments(const float* mean, const float* deviation, int64_t rows,
                               int64_t channels, double* sums, const ExecutionContext& context);
absl::Status CudaMomentsOfSums(const double* sums, int64_t channels, float* mean, float* deviation,
                               const ExecutionContext& context);
absl::Status CudaBatchNormScale(const BatchNormBatch& batch, const ExecutionContext& context);
absl::Status CudaBatchNormGradSums(const BatchNormGradArgs& args, const ExecutionContext& context);
absl::Status CudaBatchNormInputGrad(const BatchNormGradArgs& args, const TensorView& dx,
                                    const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_BATCH_NORM_H_
