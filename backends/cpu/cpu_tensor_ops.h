// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_BACKENDS_CPU_CPU_TENSOR_OPS_H_
#define VOXCONV_BACKENDS_CPU_CPU_TENSOR_OPS_H_

#include <memory>

#include "voxconv/core/tensor_ops.h"

namespace voxconv {

// See core/tensor_ops.h. Stateless. The contexts that it is called with must be of a CpuBackend.
// Runs on the backend's threads. Results do not depend on the number of threads.
std::unique_ptr<TensorOps> MakeCpuTensorOps();

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_CPU_TENSOR_OPS_H_
