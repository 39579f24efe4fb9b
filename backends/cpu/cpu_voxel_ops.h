// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_BACKENDS_CPU_CPU_VOXEL_OPS_H_
#define VOXCONV_BACKENDS_CPU_CPU_VOXEL_OPS_H_

#include <memory>

#include "voxconv/core/voxel_ops.h"

namespace voxconv {

// See core/voxel_ops.h. Stateless. The contexts that it is called with must be of a CPU backend.
std::unique_ptr<VoxelOps> MakeCpuVoxelOps();

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_CPU_VOXEL_OPS_H_
