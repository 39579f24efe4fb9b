// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/data/dataset.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/npy.h"
#include "voxconv/training/data/meshes.h"
#include "voxconv/training/data/scan_sets.h"
#include "voxconv/training/data/voxel_models.h"

namespace voxconv {

namespace {

absl::Status NoClouds(const std::string& path, const std::string& split) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": split ", split, ": 0 clouds; at least 1 is needed"));
}

// An .npz file, or several with commas between them.
absl::StatusOr<std::unique_ptr<Dataset>> OpenArrays(const std::string& path,
                                                    const std::string& split,
                                                    const DatasetOptions& options) {
  const std::vector<std::string> files = absl::StrSplit(path, ',', absl::SkipEmpty());
  if (files.size() > 1) return OpenFrames(files);
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListNpz(files[0]));
  const auto holds = [&](absl::string_view array, absl::string_view of) {
    return std::find(names.begin(), names.end(), absl::StrCat(array, of)) != names.end();
  };
  const absl::string_view other = split == "train" ? "test" : "train";
  if (holds("coords_", split)) return OpenVoxelModels(files[0], split);
  if (holds("mesh_vertices_", split)) return OpenMeshModels(files[0], split, options);
  if (holds("coords_", other) || holds("mesh_vertices_", other)) return NoClouds(path, split);
  return OpenFrames(files);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const std::string& path,
                                                     const std::string& split,
                                                     const DatasetOptions& options) {
  if (split != "train" && split != "test") {
    return absl::InvalidArgumentError(
        absl::StrCat("split: '", split, "'; allowed are train and test"));
  }
  std::error_code ignored;
  const bool has_sequences =
      std::filesystem::is_directory(std::filesystem::path(path) / "sequences", ignored);
  absl::StatusOr<std::unique_ptr<Dataset>> set =
      absl::EndsWith(path, ".npz") ? OpenArrays(path, split, options)
      : has_sequences              ? OpenSemanticKitti(path, split)
                                   : OpenClassFolders(path, split, options);
  if (set.ok() && (*set)->size() == 0) return NoClouds(path, split);
  return set;
}

}  // namespace voxconv
