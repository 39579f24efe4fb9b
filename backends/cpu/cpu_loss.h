// SPDX-License-Identifier: Apache-2.0
// Losses on the CPU. core/training_ops.h says what the functions do.
#ifndef VOXCONV_BACKENDS_CPU_CPU_LOSS_H_
#define VOXCONV_BACKENDS_CPU_CPU_LOSS_H_

#include "absl/status/status.h"
#include "voxconv/core/training_ops.h"

namespace voxconv {

absl::Status CpuCrossEntropy(const CrossEntropyArgs& args, const TensorView& gradient,
                             LossResult* result, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_CPU_LOSS_H_
