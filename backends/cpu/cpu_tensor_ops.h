#ifndef VOXCONV_BACKENDS_CPU_CPU_TENSOR_OPS_H_
#define VOXCONV_BACKENDS_CPU_CPU_TENSOR_OPS_H_

#include <memory>

#include "core/tensor_ops.h"

namespace voxconv {

// core/tensor_ops.h on the CPU backend's threads. Deterministic for any thread count.
std::unique_ptr<TensorOps> MakeCpuTensorOps();

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_CPU_TENSOR_OPS_H_
