// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/load_input.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/scenes.h"

namespace voxconv {
namespace {

absl::StatusOr<VoxelizedCloud> VoxelizeInput(const std::string& input, const PointCloud& cloud,
                                             const VoxelizeOptions& options) {
  absl::StatusOr<VoxelizedCloud> voxels = Voxelize(cloud, options);
  if (voxels.ok()) return voxels;
  return StatusAt(input, voxels.status());
}

absl::Status CheckNoReadOptions(const std::string& input, const ReadOptions& read) {
  const char* given = !read.fields.empty()     ? "fields"
                      : !read.dtype_in.empty() ? "dtype_in"
                      : !read.array.empty()    ? "array"
                      : read.into_unit_sphere  ? "unit_sphere"
                                               : nullptr;
  if (given == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(input, ": ", given, " has no meaning here; it is for files"));
}

}  // namespace

absl::StatusOr<VoxelizedCloud> LoadInput(const std::string& input, const LoadOptions& options) {
  if (!IsSceneSpec(input)) {
    ReadOptions read = options.read;
    read.origin = options.voxelize.origin;
    const absl::StatusOr<PointCloud> cloud = ReadPointCloud(input, read);
    if (!cloud.ok()) return cloud.status();
    return VoxelizeInput(input, *cloud, options.voxelize);
  }
  if (absl::Status status = CheckNoReadOptions(input, options.read); !status.ok()) return status;
  absl::StatusOr<Scene> scene = MakeScene(input);
  if (!scene.ok()) return scene.status();
  if (const PointCloud* cloud = std::get_if<PointCloud>(&*scene)) {
    return VoxelizeInput(input, *cloud, options.voxelize);
  }
  // The scene is made of voxels and needs no size; one that is no size is refused all the same.
  if (absl::StatusOr<VoxelizedCloud> check = Voxelize(PointCloud{}, options.voxelize);
      !check.ok()) {
    return check.status();
  }
  VoxelizedCloud voxels = std::get<VoxelizedCloud>(*std::move(scene));
  for (Coordinate& coord : voxels.coords) coord.b = options.voxelize.batch;
  return voxels;
}

}  // namespace voxconv
