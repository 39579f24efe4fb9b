// SPDX-License-Identifier: Apache-2.0
// Losses on CUDA. core/training_ops.h says what the functions do.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_LOSS_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_LOSS_H_

#include "absl/status/status.h"
#include "voxconv/core/training_ops.h"

namespace voxconv {

// Three launches. Takes less than 32 KiB of temporary memory.
absl::Status CudaCrossEntropy(const CrossEntropyArgs& args, const TensorView& gradient,
                              LossResult* result, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_LOSS_H_
