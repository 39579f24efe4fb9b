// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/cpu_optimizer.h"

#include <cmath>

#include "voxconv/backends/cpu/column_sums.h"
#include "voxconv/core/training_checks.h"
#include "voxconv/core/training_step.h"

namespace voxconv {
namespace {

// f(i) for all parameters, in parallel.
template <typename F>
void ForEachParameter(const ParameterRange& parameters, const ExecutionContext& context,
                      const F& f) {
  ParallelRanges(context, parameters.size, RowsPerTask(1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

}  // namespace

absl::Status CpuSquaredNorm(const float* values, int64_t size, double* norm,
                            const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckSquaredNorm(values, size, norm));
  *norm = SumRows(context, size, 1, [&](int64_t i, double* sum) {
    *sum += static_cast<double>(values[i]) * values[i];
  })[0];
  return absl::OkStatus();
}

absl::Status CpuPrepareStep(const StepRule& rule, const double* squared_norm, StepState* state) {
  VOXCONV_RETURN_IF_ERROR(CheckPrepareStep(rule, squared_norm, state));
  BeginStep(rule, *squared_norm, *state);
  return absl::OkStatus();
}

absl::Status CpuStep(const SgdStep& step, const ParameterRange& parameters, const StepState* state,
                     const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckStep(step, parameters, state));
  if (parameters.size == 0 || state->skipped != 0) return absl::OkStatus();
  const SgdRule rule(step, *state);
  ForEachParameter(parameters, context, [&](int64_t i) {
    rule.Apply(parameters.gradients[i], parameters.values[i], step.velocity[i]);
  });
  return absl::OkStatus();
}

absl::Status CpuStep(const AdamWStep& step, const ParameterRange& parameters,
                     const StepState* state, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckStep(step, parameters, state));
  if (parameters.size == 0 || state->skipped != 0) return absl::OkStatus();
  const AdamWRule rule(step, *state);
  ForEachParameter(parameters, context, [&](int64_t i) {
    rule.Apply(parameters.gradients[i], parameters.values[i], step.first[i], step.second[i]);
  });
  return absl::OkStatus();
}

}  // namespace voxconv
