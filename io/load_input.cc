// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/load_input.h"

#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/read_voxels.h"
#include "voxconv/io/scenes.h"

namespace voxconv {
namespace {

// Cuts a PointCloud or VoxelizedCloud to the range, if there is one.
template <typename Cloud>
absl::Status Crop(const std::string& input, const std::optional<Range>& range, Cloud& cloud) {
  if (!range.has_value()) return absl::OkStatus();
  CropToRange(*range, cloud);
  return CheckLeft(input, cloud.size(), cloud.cropped);
}

absl::StatusOr<VoxelizedCloud> VoxelizeInput(const std::string& input, PointCloud cloud,
                                             const LoadOptions& options) {
  VOXCONV_RETURN_IF_ERROR(Crop(input, options.range, cloud));
  absl::StatusOr<VoxelizedCloud> voxels = Voxelize(cloud, options.voxelize);
  if (voxels.ok()) return voxels;
  return StatusAt(input, voxels.status());
}

// A size that is none is refused where it is not used, too.
absl::Status CheckVoxelize(const VoxelizeOptions& options) {
  return Voxelize(PointCloud{}, options).status();
}

absl::StatusOr<VoxelizedCloud> LoadFile(const std::string& input, const LoadOptions& options) {
  ReadOptions read = options.read;
  read.origin = options.voxelize.origin;
  VOXCONV_ASSIGN_OR_RETURN(std::optional<VoxelizedCloud> voxels,
                           ReadVoxels(input, read, options.voxelize.batch));
  if (!voxels.has_value()) {
    VOXCONV_ASSIGN_OR_RETURN(PointCloud cloud, ReadPointCloud(input, read));
    return VoxelizeInput(input, std::move(cloud), options);
  }
  VOXCONV_RETURN_IF_ERROR(CheckVoxelize(options.voxelize));
  VOXCONV_RETURN_IF_ERROR(Crop(input, options.range, *voxels));
  PutInOrder(options.voxelize.order, options.voxelize.order_seed, *voxels);
  return *std::move(voxels);
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
  if (!IsSceneSpec(input)) return LoadFile(input, options);
  VOXCONV_RETURN_IF_ERROR(CheckNoReadOptions(input, options.read));
  VOXCONV_ASSIGN_OR_RETURN(Scene scene, MakeScene(input));
  if (PointCloud* cloud = std::get_if<PointCloud>(&scene)) {
    return VoxelizeInput(input, std::move(*cloud), options);
  }
  VOXCONV_RETURN_IF_ERROR(CheckVoxelize(options.voxelize));
  VoxelizedCloud voxels = std::get<VoxelizedCloud>(std::move(scene));
  voxels.from_voxels = true;
  for (Coordinate& coord : voxels.coords) coord.b = options.voxelize.batch;
  VOXCONV_RETURN_IF_ERROR(Crop(input, options.range, voxels));
  PutInOrder(options.voxelize.order, options.voxelize.order_seed, voxels);
  return voxels;
}

absl::Status CheckUsed(const std::string& input, const LoadOptions& options,
                       const VoxelizedCloud& cloud) {
  const VoxelizeOptions usual;
  const char* unused = nullptr;
  if (cloud.from_voxels) {
    if (options.voxelize.size != usual.size) unused = "voxel_size";
    if (options.voxelize.origin != usual.origin) unused = "origin";
    if (options.voxelize.rule != usual.rule) unused = "voxel_rule";
    if (unused != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(input, ": ", unused, " has no meaning here; these are voxels, not points"));
    }
  }
  if (!cloud.from_mesh && options.read.samples != ReadOptions().samples) {
    return absl::InvalidArgumentError(
        absl::StrCat(input, ": samples has no meaning here; it is for meshes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<VoxelizedCloud> LoadInputAsAsked(const std::string& input,
                                                const LoadOptions& options) {
  VOXCONV_ASSIGN_OR_RETURN(VoxelizedCloud cloud, LoadInput(input, options));
  VOXCONV_RETURN_IF_ERROR(CheckUsed(input, options, cloud));
  return cloud;
}

}  // namespace voxconv
