// SPDX-License-Identifier: Apache-2.0
// The Lovász-softmax loss on the CPU. core/training_ops.h says what the function does.
#ifndef VOXCONV_BACKENDS_CPU_CPU_LOVASZ_H_
#define VOXCONV_BACKENDS_CPU_CPU_LOVASZ_H_

#include "absl/status/status.h"
#include "voxconv/core/training_ops.h"

namespace voxconv {

// Takes 8 bytes of temporary memory for each logit, and 8 for each row and thread.
absl::Status CpuLovaszSoftmax(const LovaszArgs& args, const TensorView& gradient,
                              LossResult* result, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_CPU_LOVASZ_H_
