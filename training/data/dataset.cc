// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/data/dataset.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/npy.h"
#include "voxconv/training/data/meshes.h"
#include "voxconv/training/data/scan_sets.h"
#include "voxconv/training/data/voxel_models.h"

namespace voxconv {

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const std::string& path,
                                                     const std::string& split,
                                                     const DatasetOptions& options) {
  if (split != "train" && split != "test") {
    return absl::InvalidArgumentError(
        absl::StrCat("split: '", split, "'; allowed are train and test"));
  }
  if (!absl::EndsWith(path, ".npz")) {
    std::error_code ignored;
    return std::filesystem::is_directory(std::filesystem::path(path) / "sequences", ignored)
               ? OpenSemanticKitti(path, split)
               : OpenClassFolders(path, split, options);
  }
  const std::vector<std::string> files = absl::StrSplit(path, ',', absl::SkipEmpty());
  if (files.size() > 1) return OpenFrames(files);
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListNpz(files[0]));
  for (const std::string& name : names) {
    if (name == absl::StrCat("coords_", split)) return OpenVoxelModels(files[0], split);
    if (name == absl::StrCat("mesh_vertices_", split)) {
      return OpenMeshModels(files[0], split, options);
    }
  }
  return OpenFrames(files);
}

}  // namespace voxconv
