// SPDX-License-Identifier: Apache-2.0
// Steps of optimisers on CUDA. core/training_ops.h says what the functions do.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_OPTIMIZER_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_OPTIMIZER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/core/training_ops.h"

namespace voxconv {

// Two launches. Takes at most 8 KiB of temporary memory.
absl::Status CudaSquaredNorm(const float* values, int64_t size, double* norm,
                             const ExecutionContext& context);
// One launch each.
absl::Status CudaPrepareStep(const StepRule& rule, const double* squared_norm, StepState* state,
                             const ExecutionContext& context);
absl::Status CudaStep(const SgdStep& step, const ParameterRange& parameters, const StepState* state,
                      const ExecutionContext& context);
absl::Status CudaStep(const AdamWStep& step, const ParameterRange& parameters,
                      const StepState* state, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_OPTIMIZER_H_
