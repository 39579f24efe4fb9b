// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_TENSOR_OPS_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_TENSOR_OPS_H_

#include <memory>

#include "voxconv/core/tensor_ops.h"

namespace voxconv {

// See core/tensor_ops.h. Stateless. The contexts that it is called with must be of a CUDA backend.
std::unique_ptr<TensorOps> MakeCudaTensorOps();

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_TENSOR_OPS_H_
