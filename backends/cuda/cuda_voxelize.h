// SPDX-License-Identifier: Apache-2.0
// Points to voxels on CUDA. core/voxel_ops.h says what the function does.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_VOXELIZE_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_VOXELIZE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "voxconv/core/voxel_ops.h"

namespace voxconv {

// A fill and five launches. Takes 44 to 76 bytes of temporary memory for each point.
absl::StatusOr<PointVoxels> CudaVoxelize(const ConstTensorView& points, const int32_t* batches,
                                         const VoxelOptions& options,
                                         const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_VOXELIZE_H_
