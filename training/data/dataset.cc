// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/data/dataset.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/npy.h"
#include "voxconv/training/data/scan_sets.h"
#include "voxconv/training/data/voxel_models.h"

namespace voxconv {

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const std::string& path,
                                                     const std::string& split) {
  if (split != "train" && split != "test") {
    return absl::InvalidArgumentError(
        absl::StrCat("split: '", split, "'; allowed are train and test"));
  }
  if (!absl::EndsWith(path, ".npz")) return OpenSemanticKitti(path, split);
  const std::vector<std::string> files = absl::StrSplit(path, ',', absl::SkipEmpty());
  if (files.size() > 1) return OpenFrames(files);
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListNpz(files[0]));
  for (const std::string& name : names) {
    if (name == absl::StrCat("coords_", split)) return OpenVoxelModels(files[0], split);
  }
  return OpenFrames(files);
}

absl::Status CheckLabels(absl::Span<const int32_t> labels, int32_t least, int64_t classes,
                         absl::string_view array) {
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= least && labels[i] < classes) continue;
    return absl::InvalidArgumentError(absl::StrCat(array, ": ", labels[i], " at ", i,
                                                   "; allowed are ", least, " to ", classes - 1));
  }
  return absl::OkStatus();
}

std::vector<std::string> NumberedClasses(int64_t classes) {
  std::vector<std::string> names;
  for (int64_t c = 0; c < classes; ++c) names.push_back(absl::StrCat("class ", c));
  return names;
}

}  // namespace voxconv
