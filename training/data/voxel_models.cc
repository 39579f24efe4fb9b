// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/data/voxel_models.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/npy.h"
#include "voxconv/training/data/content_hash.h"
#include "voxconv/training/data/model_arrays.h"

namespace voxconv {
namespace {

class VoxelModels final : public Dataset {
 public:
  // `cells`: [offsets.back(), 3]. Model i has the cells [offsets[i], offsets[i + 1]).
  VoxelModels(std::string path, std::string split, std::vector<int32_t> cells,
              std::vector<int64_t> offsets, std::vector<int32_t> labels,
              std::vector<std::string> class_names)
      : path_(std::move(path)),
        split_(std::move(split)),
        cells_(std::move(cells)),
        offsets_(std::move(offsets)),
        labels_(std::move(labels)),
        class_names_(std::move(class_names)) {
    for (size_t i = 0; i < labels_.size(); ++i) {
      if (offsets_[i] < offsets_[i + 1]) models_.push_back(static_cast<int64_t>(i));
    }
  }

  int64_t size() const override { return static_cast<int64_t>(models_.size()); }
  LabelKind label_kind() const override { return LabelKind::kCloud; }
  int64_t classes() const override { return static_cast<int64_t>(class_names_.size()); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::string NameOf(int64_t index) const override {
    return absl::StrCat(path_, ": ", split_, " model ", models_[index]);
  }
  absl::StatusOr<std::string> ContentHash() const override { return HashFiles({path_}); }
  absl::StatusOr<LabelledCloud> Load(int64_t index) const override {
    const int64_t model = models_[index];
    LabelledCloud cloud{.cloud = {}, .labels = {labels_[model]}};
    for (int64_t i = 3 * offsets_[model]; i < 3 * offsets_[model + 1]; ++i) {
      cloud.cloud.xyz.push_back(cells_[i] + 0.5);
    }
    return cloud;
  }

 private:
  std::string path_, split_;
  std::vector<int32_t> cells_;
  std::vector<int64_t> offsets_;
  std::vector<int32_t> labels_;
  std::vector<std::string> class_names_;
  std::vector<int64_t> models_;  // those that have cells
};

// The arrays of one split.
struct Arrays {
  std::vector<int32_t> cells, labels;
  std::vector<int64_t> offsets;
};

absl::StatusOr<Arrays> ReadSplit(const std::string& path, const std::string& split) {
  const std::string coords = absl::StrCat("coords_", split);
  const std::string offsets = absl::StrCat("offsets_", split);
  const std::string labels = absl::StrCat("labels_", split);
  VOXCONV_ASSIGN_OR_RETURN(const NpzArrays npz, ReadNpz(path, {.only = {coords, offsets, labels}}));
  VOXCONV_ASSIGN_OR_RETURN(const NpyArray* rows, FindModelRows(npz, coords));
  Arrays arrays;
  VOXCONV_ASSIGN_OR_RETURN(arrays.cells, ToInt32(*rows, coords));
  VOXCONV_ASSIGN_OR_RETURN(arrays.labels, ReadModelLabels(npz, labels));
  VOXCONV_ASSIGN_OR_RETURN(arrays.offsets,
                           ReadModelEnds(npz, offsets, coords, rows->shape[0], labels));
  return arrays;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenVoxelModels(const std::string& path,
                                                         const std::string& split) {
  absl::StatusOr<Arrays> arrays = ReadSplit(path, split);
  if (!arrays.ok()) return StatusAt(path, arrays.status());
  VOXCONV_ASSIGN_OR_RETURN(ModelClasses names, ReadModelClasses(path, split, arrays->labels));
  return std::make_unique<VoxelModels>(path, split, std::move(arrays->cells),
                                       std::move(arrays->offsets), std::move(arrays->labels),
                                       std::move(names));
}

}  // namespace voxconv
