// SPDX-License-Identifier: Apache-2.0
// The Lovász-softmax loss on CUDA. core/training_ops.h says what the function does.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_LOVASZ_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_LOVASZ_H_

#include "absl/status/status.h"
#include "voxconv/core/training_ops.h"

namespace voxconv {

// Sorts the errors of several classes at once, as many as keep a sort to 2^21 errors, or of one.
// Five launches for each sort, and three more. Takes 4 bytes of temporary memory for each logit and
// about 40 for each error of a sort.
absl::Status CudaLovaszSoftmax(const LovaszArgs& args, const TensorView& gradient,
                               LossResult* result, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_LOVASZ_H_
