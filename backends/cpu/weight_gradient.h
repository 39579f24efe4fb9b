// The weight gradient that serves every dataflow on the CPU (TensorOps::WeightGradient).
#ifndef VOXCONV_BACKENDS_CPU_WEIGHT_GRADIENT_H_
#define VOXCONV_BACKENDS_CPU_WEIGHT_GRADIENT_H_

#include "absl/status/status.h"
#include "core/kernel_map.h"
#include "core/tensor.h"

namespace voxconv {

// All arguments are checked already.
absl::Status CpuWeightGradient(const KernelMap& map, const ConstTensorView& x,
                               const ConstTensorView& dy, const TensorView& gradient,
                               const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_WEIGHT_GRADIENT_H_
