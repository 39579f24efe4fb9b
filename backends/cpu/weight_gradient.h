// SPDX-License-Identifier: Apache-2.0
// The weight gradient that serves every dataflow on the CPU (TensorOps::WeightGradient).
#ifndef VOXCONV_BACKENDS_CPU_WEIGHT_GRADIENT_H_
#define VOXCONV_BACKENDS_CPU_WEIGHT_GRADIENT_H_

#include "absl/status/status.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/tensor.h"

namespace voxconv {

// See TensorOps::WeightGradient. The arguments must have been checked (core/tensor_checks.h). Runs
// on the context's threads. The result does not depend on their number.
absl::Status CpuWeightGradient(const KernelMap& map, const ConstTensorView& x,
                               const ConstTensorView& dy, const TensorView& gradient,
                               const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_WEIGHT_GRADIENT_H_
