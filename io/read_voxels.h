// SPDX-License-Identifier: Apache-2.0
// Files that hold voxels instead of points.
#ifndef VOXCONV_IO_READ_VOXELS_H_
#define VOXCONV_IO_READ_VOXELS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "voxconv/io/read_point_cloud.h"
#include "voxconv/io/voxelize.h"

namespace voxconv {

// The voxels of an .npy or .npz file whose coordinates are integers; nullopt for any other file,
// which ReadPointCloud reads or refuses. The coordinates are the array of an .npy file. Of an .npz
// file they are the array `options.array`, or else "points", or else "coords", or else the first.
// They are [N, 3], x, y, z, or [N, 4] with the batch index in front. An .npz file may have their
// features beside them: "features", float16, float32 or float64, [N, C]. `batch` is the index of
// [N, 3]. The rows have the order of the file.
//
// kInvalidArgument for other shapes, features that do not fit, options that have no meaning for
// voxels, and a voxel that comes twice; the message names both rows. kOutOfRange for a coordinate
// or batch index that a key cannot hold (core/coordinate_key.h). Errors of ReadNpz. O(N log N).
absl::StatusOr<std::optional<VoxelizedCloud>> ReadVoxels(const std::string& path,
                                                         const ReadOptions& options, int32_t batch);

}  // namespace voxconv

#endif  // VOXCONV_IO_READ_VOXELS_H_
