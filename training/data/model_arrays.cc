// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/data/model_arrays.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

absl::StatusOr<const NpyArray*> FindShaped(const NpzArrays& arrays, const std::string& name,
                                           size_t axes) {
  const NpyArray* array = FindArray(arrays, name);
  if (array == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("array '", name, "' is missing"));
  }
  if (array->shape.size() == axes && (axes == 1 || array->shape[1] == 3)) return array;
  return absl::InvalidArgumentError(absl::StrCat("array '", name, "' has the shape ",
                                                 NpyShapeString(array->shape), "; ",
                                                 axes == 1 ? "[n]" : "[n, 3]", " is needed"));
}

// A class has one number in both splits, so both count. `labels` are those of one of them; the
// other may be missing, and its labels are checked when it is opened.
absl::StatusOr<ModelClasses> UnnamedClasses(const std::string& path, const std::string& other,
                                            absl::Span<const int32_t> labels) {
  int32_t most = 0;
  for (const int32_t label : labels) most = std::max(most, label);
  const std::string array = absl::StrCat("labels_", other);
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<std::string> arrays, ListNpz(path));
  if (std::find(arrays.begin(), arrays.end(), array) != arrays.end()) {
    VOXCONV_ASSIGN_OR_RETURN(const NpzArrays npz, ReadNpz(path, {.only = {array}}));
    const absl::StatusOr<std::vector<int32_t>> others = ReadModelLabels(npz, array);
    if (!others.ok()) return StatusAt(path, others.status());
    for (const int32_t label : *others) {
      if (label < kMostUnnamedClasses) most = std::max(most, label);
    }
  }
  ModelClasses names;
  for (int32_t c = 0; c <= most; ++c) names.push_back(absl::StrCat("class ", c));
  return names;
}

}  // namespace

absl::StatusOr<const NpyArray*> FindModelRows(const NpzArrays& arrays, const std::string& name) {
  return FindShaped(arrays, name, 2);
}

absl::StatusOr<std::vector<int32_t>> ReadModelLabels(const NpzArrays& arrays,
                                                     const std::string& name) {
  VOXCONV_ASSIGN_OR_RETURN(const NpyArray* array, FindShaped(arrays, name, 1));
  return ToInt32(*array, name);
}

absl::StatusOr<std::vector<int64_t>> ReadModelEnds(const NpzArrays& arrays, const std::string& name,
                                                   const std::string& rows_name, int64_t rows,
                                                   const std::string& labels_name) {
  VOXCONV_ASSIGN_OR_RETURN(const NpyArray* array, FindShaped(arrays, name, 1));
  VOXCONV_ASSIGN_OR_RETURN(std::vector<int64_t> ends, ToInt64(*array, name));
  VOXCONV_ASSIGN_OR_RETURN(const NpyArray* labels, FindShaped(arrays, labels_name, 1));
  if (static_cast<int64_t>(ends.size()) != labels->size() + 1 || ends.front() != 0 ||
      !std::is_sorted(ends.begin(), ends.end()) || ends.back() != rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("array '", name, "': it must ascend from 0 to the ", rows, " rows of '",
                     rows_name, "', with one entry more than '", labels_name, "' has"));
  }
  return ends;
}

absl::StatusOr<ModelClasses> ReadModelClasses(const std::string& path, const std::string& split,
                                              absl::Span<const int32_t> labels) {
  VOXCONV_ASSIGN_OR_RETURN(ModelClasses names, ReadNpzText(path, "class_names"));
  const std::string array = absl::StrCat("labels_", split);
  absl::Status status = CheckClassNames(names);
  if (names.empty()) {
    status = CheckLabels(labels, 0, kMostUnnamedClasses, array);
    if (status.ok()) {
      VOXCONV_ASSIGN_OR_RETURN(names,
                               UnnamedClasses(path, split == "train" ? "test" : "train", labels));
    }
  }
  status.Update(CheckLabels(labels, 0, static_cast<int64_t>(names.size()), array));
  if (!status.ok()) return StatusAt(path, status);
  return names;
}

absl::Status CheckClassNames(const ModelClasses& names) {
  for (auto name = names.begin(); name != names.end(); ++name) {
    const auto other = std::find(names.begin(), name, *name);
    if (other == name) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "class_names: '", *name, "' at ", other - names.begin(), " and at ", name - names.begin()));
  }
  return absl::OkStatus();
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

}  // namespace voxconv
