// SPDX-License-Identifier: Apache-2.0
// Batch norm in training on the CPU. core/training_ops.h says what the functions do.
#ifndef VOXCONV_BACKENDS_CPU_CPU_BATCH_NORM_H_
#define VOXCONV_BACKENDS_CPU_CPU_BATCH_NORM_H_

#include "absl/status/status.h"
#include "voxconv/core/training_ops.h"

namespace voxconv {

absl::Status CpuChannelMoments(const ConstTensorView& x, float* mean, float* deviation,
                               const ExecutionContext& context);
absl::Status CpuSumsOfMoments(const float* mean, const float* deviation, int64_t rows,
                              int64_t channels, double* sums);
absl::Status CpuMomentsOfSums(const double* sums, int64_t channels, float* mean, float* deviation);
absl::Status CpuBatchNormScale(const BatchNormBatch& batch);
absl::Status CpuBatchNormGradSums(const BatchNormGradArgs& args, const ExecutionContext& context);
absl::Status CpuBatchNormInputGrad(const BatchNormGradArgs& args, const TensorView& dx,
                                   const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_CPU_BATCH_NORM_H_
