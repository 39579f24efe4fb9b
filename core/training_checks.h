// SPDX-License-Identifier: Apache-2.0
// The checks of TrainingOps' arguments, for the same purpose and in the same words as
// core/tensor_checks.h.
#ifndef VOXCONV_CORE_TRAINING_CHECKS_H_
#define VOXCONV_CORE_TRAINING_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/training_ops.h"

namespace voxconv {

absl::Status CheckChannelMoments(const ConstTensorView& x, const float* mean,
                                 const float* deviation, const Backend& backend);
absl::Status CheckMomentSums(const float* mean, const float* deviation, int64_t channels,
                             const double* sums);
absl::Status CheckBatchNormScale(const BatchNormBatch& batch);
absl::Status CheckBatchNormGradSums(const BatchNormGradArgs& args, const Backend& backend);
absl::Status CheckBatchNormInputGrad(const BatchNormGradArgs& args, const TensorView& dx,
                                     const Backend& backend);
absl::Status CheckReluGrad(const ConstTensorView& y, const ConstTensorView& dy,
                           const TensorView& dx, const Backend& backend);
absl::Status CheckSplit(const ConstTensorView& y, const TensorView& a, const TensorView& b,
                        const Backend& backend);
absl::Status CheckColumnSums(const ConstTensorView& x, const float* sums, const Backend& backend);
absl::Status CheckLinearWeightGradient(const ConstTensorView& x, const ConstTensorView& dy,
                                       Precision precision, const TensorView& gradient,
                                       const Backend& backend);
absl::Status CheckSelect(const ConstTensorView& x, const int32_t* switches, const TensorView& y,
                         const Backend& backend);
absl::Status CheckGlobalPoolGrad(int64_t rows, PoolMode mode, const ConstTensorView& x,
                                 const ConstTensorView& y, const ConstTensorView& dy,
                                 const TensorView& dx, const Backend& backend);
absl::Status CheckDropout(const ConstTensorView& x, double rate, const TensorView& y,
                          const Backend& backend);
absl::Status CheckCrossEntropy(const CrossEntropyArgs& args, const TensorView& gradient,
                               const LossResult* result, const Backend& backend);
absl::Status CheckLovaszSoftmax(const LovaszArgs& args, const TensorView& gradient,
                                const LossResult* result, const Backend& backend);
absl::Status CheckSquaredNorm(const float* values, int64_t size, const double* norm);
absl::Status CheckPrepareStep(const StepRule& rule, const double* squared_norm,
                              const StepState* state);
absl::Status CheckStep(const SgdStep& step, const ParameterRange& parameters,
                       const StepState* state);
absl::Status CheckStep(const AdamWStep& step, const ParameterRange& parameters,
                       const StepState* state);

}  // namespace voxconv

#endif  // VOXCONV_CORE_TRAINING_CHECKS_H_
