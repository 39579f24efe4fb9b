// SPDX-License-Identifier: Apache-2.0
// Steps of optimisers on the CPU. core/training_ops.h says what the functions do.
#ifndef VOXCONV_BACKENDS_CPU_CPU_OPTIMIZER_H_
#define VOXCONV_BACKENDS_CPU_CPU_OPTIMIZER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/core/training_ops.h"

namespace voxconv {

absl::Status CpuSquaredNorm(const float* values, int64_t size, double* norm,
                            const ExecutionContext& context);
absl::Status CpuPrepareStep(const StepRule& rule, const double* squared_norm, StepState* state);
absl::Status CpuStep(const SgdStep& step, const ParameterRange& parameters, const StepState* state,
                     const ExecutionContext& context);
absl::Status CpuStep(const AdamWStep& step, const ParameterRange& parameters,
                     const StepState* state, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_CPU_OPTIMIZER_H_
