// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_LOAD_INPUT_H_
#define VOXCONV_IO_LOAD_INPUT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "voxconv/io/range.h"
#include "voxconv/io/read_point_cloud.h"
#include "voxconv/io/voxelize.h"

namespace voxconv {

struct LoadOptions {
  ReadOptions read;  // for files
  // For files of points and point scenes. Of what is voxels already, only the batch index and the
  // order of rows.
  VoxelizeOptions voxelize;
  // The input is cut to this before it is voxelised. In voxels where the input is voxels already.
  std::optional<Range> range;
};

// Voxels of an input as the program names it: a file's path or a scene ("scene:NAME?key=value"). A
// file holds points (io/read_point_cloud.h) or voxels (io/read_voxels.h). kInvalidArgument for a
// range without a point. Errors of ReadPointCloud, ReadVoxels, MakeScene and Voxelize.
absl::StatusOr<VoxelizedCloud> LoadInput(const std::string& input, const LoadOptions& options);

// An error for an option that is not at its default and that LoadInput had no use for: a voxel
// size, an origin or a rule for what is voxels already, or samples for what is no mesh.
absl::Status CheckUsed(const std::string& input, const LoadOptions& options,
                       const VoxelizedCloud& cloud);

// LoadInput and CheckUsed.
absl::StatusOr<VoxelizedCloud> LoadInputAsAsked(const std::string& input,
                                                const LoadOptions& options);

}  // namespace voxconv

#endif  // VOXCONV_IO_LOAD_INPUT_H_
