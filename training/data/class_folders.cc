// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/read_point_cloud.h"
#include "voxconv/training/data/content_hash.h"
#include "voxconv/training/data/meshes.h"

namespace voxconv {
namespace {

namespace fs = std::filesystem;

// The names in a folder in ascending order, without hidden ones. None where there is no folder.
std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!absl::StartsWith(name, ".")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// False, too, for what cannot be looked at, such as a link to itself.
bool IsFolder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// How the folders lie: FOLDER/SPLIT/CLASS or FOLDER/CLASS/SPLIT.
class Layout {
 public:
  explicit Layout(fs::path folder) : folder_(std::move(folder)) {
    split_first_ = IsFolder(folder_ / "train") || IsFolder(folder_ / "test");
  }

  // Of both splits, so that a class has one number in both.
  std::vector<std::string> Classes() const {
    std::set<std::string> classes;
    if (split_first_) {
      for (const char* split : {"train", "test"}) {
        for (const std::string& name : NamesIn(folder_ / split)) {
          if (IsFolder(folder_ / split / name)) classes.insert(name);
        }
      }
    } else {
      for (const std::string& name : NamesIn(folder_)) {
        if (IsFolder(folder_ / name / "train") || IsFolder(folder_ / name / "test")) {
          classes.insert(name);
        }
      }
    }
    return {classes.begin(), classes.end()};
  }

  fs::path FolderOf(const std::string& name, const std::string& split) const {
    return split_first_ ? folder_ / split / name : folder_ / name / split;
  }

 private:
  fs::path folder_;
  bool split_first_ = false;
};

struct File {
  std::string path;
  int32_t label = 0;
};

class ClassFolders final : public Dataset {
 public:
  ClassFolders(std::string folder, std::vector<File> files, std::vector<std::string> class_names,
               DatasetOptions options)
      : folder_(std::move(folder)),
        files_(std::move(files)),
        class_names_(std::move(class_names)),
        options_(options) {}

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  LabelKind label_kind() const override { return LabelKind::kCloud; }
  int64_t classes() const override { return static_cast<int64_t>(class_names_.size()); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  bool draws_points() const override { return true; }
  std::string NameOf(int64_t index) const override { return files_[index].path; }
  absl::StatusOr<std::string> ContentHash() const override {
    std::vector<std::string> paths;
    for (const File& file : files_) paths.push_back(file.path);
    return HashNamesAndSizes(folder_, paths);
  }
  absl::StatusOr<LabelledCloud> Load(int64_t index) const override {
    LabelledCloud cloud{.cloud = {}, .labels = {files_[index].label}};
    VOXCONV_ASSIGN_OR_RETURN(
        cloud.cloud, ReadPointCloud(files_[index].path, {.samples = options_.samples,
                                                         .seed = static_cast<uint64_t>(index)}));
    return cloud;
  }

 private:
  std::string folder_;
  std::vector<File> files_;
  std::vector<std::string> class_names_;
  DatasetOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenClassFolders(const std::string& folder,
                                                          const std::string& split,
                                                          const DatasetOptions& options) {
  const Layout layout(folder);
  std::vector<std::string> classes = layout.Classes();
  std::vector<File> files;
  for (size_t c = 0; c < classes.size(); ++c) {
    const fs::path of_class = layout.FolderOf(classes[c], split);
    for (const std::string& name : NamesIn(of_class)) {
      const std::string path = (of_class / name).string();
      if (!HasPointCloudExtension(path)) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": no file of points or of a mesh; a class folder holds no others"));
      }
      files.push_back({path, static_cast<int32_t>(c)});
    }
  }
  if (classes.empty()) {
    return absl::NotFoundError(absl::StrCat(
        folder,
        ": no data set; allowed are .npz files, a folder with sequences/NN/velodyne/*.bin, "
        "and a folder with CLASS/",
        split, "/* or ", split, "/CLASS/*"));
  }
  return std::make_unique<ClassFolders>(folder, std::move(files), std::move(classes), options);
}

}  // namespace voxconv
