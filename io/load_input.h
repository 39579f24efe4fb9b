// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_LOAD_INPUT_H_
#define VOXCONV_IO_LOAD_INPUT_H_

#include <string>

#include "absl/status/statusor.h"
#include "voxconv/io/read_point_cloud.h"
#include "voxconv/io/voxelize.h"

namespace voxconv {

struct LoadOptions {
  ReadOptions read;          // for files
  VoxelizeOptions voxelize;  // for files and point scenes; of a voxel scene only the batch index
};

// Voxels of an input as the program names it: a file's path or a scene ("scene:NAME?key=value").
// Errors: those of ReadPointCloud, MakeScene and Voxelize.
absl::StatusOr<VoxelizedCloud> LoadInput(const std::string& input, const LoadOptions& options);

}  // namespace voxconv

#endif  // VOXCONV_IO_LOAD_INPUT_H_
