// SPDX-License-Identifier: Apache-2.0
// Points to voxels on the CPU. core/voxel_ops.h says what the function does.
#ifndef VOXCONV_BACKENDS_CPU_CPU_VOXELIZE_H_
#define VOXCONV_BACKENDS_CPU_CPU_VOXELIZE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "voxconv/core/voxel_ops.h"

namespace voxconv {

// Sorts the points by voxel. Takes 16 bytes of temporary memory for each point besides the sort's.
absl::StatusOr<PointVoxels> CpuVoxelize(const ConstTensorView& points, const int32_t* batches,
                                        const VoxelOptions& options,
                                        const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_CPU_VOXELIZE_H_
