// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/data/scan_sets.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/io/npy.h"
#include "voxconv/io/read_point_cloud.h"
#include "voxconv/training/data/content_hash.h"
#include "voxconv/training/data/model_arrays.h"

namespace voxconv {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string>& SemanticKittiNames() {
  static const auto* names = new std::vector<std::string>{
      "car",          "bicycle", "motorcycle", "truck",    "other-vehicle", "person",   "bicyclist",
      "motorcyclist", "road",    "parking",    "sidewalk", "other-ground",  "building", "fence",
      "vegetation",   "trunk",   "terrain",    "pole",     "traffic-sign"};
  return *names;
}

// Frames whose labels lie in the file as 0 for what is ignored, and c + 1 for class c.
class Frames final : public Dataset {
 public:
  Frames(std::vector<std::string> files, std::vector<std::string> class_names)
      : files_(std::move(files)), class_names_(std::move(class_names)) {}

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  LabelKind label_kind() const override { return LabelKind::kPoint; }
  int64_t classes() const override { return static_cast<int64_t>(class_names_.size()); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::string NameOf(int64_t index) const override { return files_[index]; }
  absl::StatusOr<std::string> ContentHash() const override { return HashFiles(files_); }
  absl::StatusOr<LabelledCloud> Load(int64_t index) const override {
    absl::StatusOr<LabelledCloud> cloud = Read(files_[index]);
    if (!cloud.ok()) return StatusAt(files_[index], cloud.status());
    return cloud;
  }

 private:
  absl::StatusOr<LabelledCloud> Read(const std::string& file) const {
    VOXCONV_ASSIGN_OR_RETURN(const NpzArrays npz,
                             ReadNpz(file, {.only = {"xyz", "intensity", "label"}}));
    const NpyArray *xyz = FindArray(npz, "xyz"), *label = FindArray(npz, "label");
    const NpyArray* intensity = FindArray(npz, "intensity");
    if (xyz == nullptr || label == nullptr) {
      return absl::InvalidArgumentError("a labelled frame needs the arrays xyz and label");
    }
    if (xyz->shape.size() != 2 || xyz->shape[1] != 3 || label->size() != xyz->shape[0] ||
        (intensity != nullptr && intensity->size() != xyz->shape[0])) {
      return absl::InvalidArgumentError(absl::StrCat(
          "xyz has the shape ", NpyShapeString(xyz->shape), ", label ",
          NpyShapeString(label->shape), "; [n, 3] and [n] are needed, and [n] of intensity"));
    }
    LabelledCloud cloud;
    VOXCONV_ASSIGN_OR_RETURN(cloud.cloud.xyz, ToFloat64(*xyz, "xyz"));
    VOXCONV_ASSIGN_OR_RETURN(cloud.labels, ToInt32(*label, "label"));
    VOXCONV_RETURN_IF_ERROR(CheckLabels(cloud.labels, 0, classes() + 1, "label"));
    for (int32_t& value : cloud.labels) --value;
    if (intensity == nullptr) return cloud;
    VOXCONV_ASSIGN_OR_RETURN(cloud.cloud.features, ToFloat32(*intensity, "intensity"));
    cloud.cloud.feature_names = {"intensity"};
    return cloud;
  }

  std::vector<std::string> files_, class_names_;
};

absl::StatusOr<bool> HasIntensity(const std::string& file) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<std::string> arrays, ListNpz(file));
  return std::find(arrays.begin(), arrays.end(), "intensity") != arrays.end();
}

class SemanticKitti final : public Dataset {
 public:
  SemanticKitti(std::string folder, std::vector<std::string> scans)
      : folder_(std::move(folder)), scans_(std::move(scans)) {}

  int64_t size() const override { return static_cast<int64_t>(scans_.size()); }
  LabelKind label_kind() const override { return LabelKind::kPoint; }
  int64_t classes() const override { return static_cast<int64_t>(SemanticKittiNames().size()); }
  const std::vector<std::string>& class_names() const override { return SemanticKittiNames(); }
  std::string NameOf(int64_t index) const override { return scans_[index]; }
  absl::StatusOr<std::string> ContentHash() const override {
    std::vector<std::string> files = scans_;
    for (const std::string& scan : scans_) files.push_back(LabelsOf(scan));
    return HashNamesAndSizes(folder_, files);
  }
  absl::StatusOr<LabelledCloud> Load(int64_t index) const override {
    const fs::path scan = scans_[index];
    const std::string labels = LabelsOf(scan);
    LabelledCloud cloud;
    VOXCONV_ASSIGN_OR_RETURN(cloud.cloud, ReadPointCloud(scan.string(), {}));
    if (cloud.cloud.dropped > 0) {
      return absl::DataLossError(absl::StrCat(scan.string(), ": ", cloud.cloud.dropped,
                                              " points have NaN or Inf; labels do not fit"));
    }
    VOXCONV_ASSIGN_OR_RETURN(const std::string bytes, ReadFileBytes(labels));
    if (bytes.size() != cloud.cloud.size() * sizeof(uint32_t)) {
      return absl::DataLossError(absl::StrCat(labels, ": ", bytes.size(), " bytes; ",
                                              cloud.cloud.size(), " points need four each"));
    }
    for (size_t i = 0; i < bytes.size(); i += sizeof(uint32_t)) {
      uint32_t raw = 0;
      std::memcpy(&raw, bytes.data() + i, sizeof(raw));
      const absl::StatusOr<int32_t> label = SemanticKittiClass(raw & 0xffffu);
      if (!label.ok()) return StatusAt(labels, label.status());
      cloud.labels.push_back(*label);
    }
    return cloud;
  }

 private:
  static std::string LabelsOf(const fs::path& scan) {
    return (scan.parent_path().parent_path() / "labels" / scan.stem()).string() + ".label";
  }

  std::string folder_;
  std::vector<std::string> scans_;
};

}  // namespace

absl::StatusOr<int32_t> SemanticKittiClass(uint32_t raw) {
  struct Entry {
    uint32_t raw;
    int32_t label;
  };
  static constexpr Entry kMap[] = {
      {0, -1},  {1, -1},  {10, 0},  {11, 1},  {13, 4},  {15, 2},  {16, 4},  {18, 3},  {20, 4},
      {30, 5},  {31, 6},  {32, 7},  {40, 8},  {44, 9},  {48, 10}, {49, 11}, {50, 12}, {51, 13},
      {52, -1}, {60, 8},  {70, 14}, {71, 15}, {72, 16}, {80, 17}, {81, 18}, {99, -1}, {252, 0},
      {253, 6}, {254, 5}, {255, 7}, {256, 4}, {257, 4}, {258, 3}, {259, 4}};
  for (const Entry& entry : kMap) {
    if (entry.raw == raw) return entry.label;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("label ", raw, ": SemanticKITTI does not define it"));
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenFrames(const std::vector<std::string>& files) {
  std::vector<std::string> class_names;
  bool first_has_intensity = false;
  for (const std::string& file : files) {
    VOXCONV_ASSIGN_OR_RETURN(std::vector<std::string> names, ReadNpzText(file, "class_names"));
    // The first name is that of what is ignored.
    if (!names.empty()) names.erase(names.begin());
    if (names.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          file,
          ": no data set; allowed are the arrays class_names (labelled frames), coords_train or "
          "coords_test (voxel models), and mesh_vertices_train or mesh_vertices_test (meshes)"));
    }
    const absl::Status unique = CheckClassNames(names);
    if (!unique.ok()) return StatusAt(file, unique);
    VOXCONV_ASSIGN_OR_RETURN(const bool intensity, HasIntensity(file));
    if (file == files[0]) first_has_intensity = intensity;
    if (intensity != first_has_intensity) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": it has ", intensity ? "an" : "no",
                                                     " intensity, and ", files[0],
                                                     intensity ? " has none" : " has one"));
    }
    if (class_names.empty()) class_names = names;
    if (names != class_names) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": class_names are others than those of ", files[0]));
    }
  }
  return std::make_unique<Frames>(files, std::move(class_names));
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenSemanticKitti(const std::string& folder,
                                                           const std::string& split) {
  constexpr std::array<const char*, 10> kTrain = {"00", "01", "02", "03", "04",
                                                  "05", "06", "07", "09", "10"};
  const std::vector<std::string> sequences =
      split == "test" ? std::vector<std::string>{"08"}
                      : std::vector<std::string>(kTrain.begin(), kTrain.end());
  std::vector<std::string> scans;
  for (const std::string& sequence : sequences) {
    std::error_code error;
    for (const auto& entry :
         fs::directory_iterator(fs::path(folder) / "sequences" / sequence / "velodyne", error)) {
      if (entry.path().extension() == ".bin") scans.push_back(entry.path().string());
    }
  }
  if (scans.empty()) {
    return absl::NotFoundError(
        absl::StrCat(folder, ": no scans in sequences/", sequences.front(), "/velodyne/*.bin"));
  }
  std::sort(scans.begin(), scans.end());
  return std::make_unique<SemanticKitti>(folder, std::move(scans));
}

}  // namespace voxconv
