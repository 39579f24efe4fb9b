// SPDX-License-Identifier: Apache-2.0
// Pooling over a kernel map on the CPU backend's threads; the parts of core/tensor_ops.h that need
// more than one loop.
#ifndef VOXCONV_BACKENDS_CPU_CPU_POOLING_H_
#define VOXCONV_BACKENDS_CPU_CPU_POOLING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/core/tensor_ops.h"

namespace voxconv {

// See TensorOps. All tensors are f32 in host memory; others are refused. The work is done when the
// call returns.
absl::Status CpuPool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                     const TensorView& y, int32_t* switches, const ExecutionContext& context);
absl::Status CpuUnpool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                       const int32_t* switches, const TensorView& y,
                       const ExecutionContext& context);
absl::Status CpuGlobalPool(const CoordinateSet& voxels, PoolMode mode, const ConstTensorView& x,
                           const TensorView& y, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_CPU_POOLING_H_
