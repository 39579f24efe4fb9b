// SPDX-License-Identifier: Apache-2.0
// Where experiment files are.
#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/experiments/runner/definition.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/measure/data_files.h"

namespace voxconv::experiment {
namespace {

namespace fs = std::filesystem;

constexpr char kDirectoryVariable[] = "VOXCONV_EXPERIMENT_DIR";

std::vector<std::string> Directories() {
  return measure::DataDirectories(kDirectoryVariable, "experiments", "");
}

// What the source tree keeps beside the experiments.
constexpr std::array<absl::string_view, 4> kOthers = {"inputs", "presets", "results", "spaces"};

// Names below one directory: FILE and FOLDER/FILE, without .json.
void AddNames(const std::string& directory, const std::string& folder,
              std::set<std::string>& names) {
  std::error_code error;
  for (fs::directory_iterator it(fs::path(directory) / folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string stem = it->path().stem().string();
    if (it->is_directory(error)) {
      const bool other = std::find(kOthers.begin(), kOthers.end(), stem) != kOthers.end();
      if (folder.empty() && !other) AddNames(directory, stem, names);
    } else if (it->path().extension() == ".json") {
      names.insert(folder.empty() ? stem : absl::StrCat(folder, "/", stem));
    }
  }
}

absl::StatusOr<Definition> LoadFile(const std::string& path) {
  VOXCONV_ASSIGN_OR_RETURN(const std::string text, ReadFileBytes(path));
  absl::StatusOr<Definition> definition = ParseDefinition(text);
  if (definition.ok()) return definition;
  return StatusAt(path, definition.status());
}

}  // namespace

absl::Status CheckDirectory() { return measure::CheckDataDirectory(kDirectoryVariable); }

std::vector<std::string> ListDefinitions() {
  std::set<std::string> names;
  for (const std::string& directory : Directories()) AddNames(directory, "", names);
  return {names.begin(), names.end()};
}

absl::StatusOr<Definition> LoadDefinition(const std::string& name) {
  if (absl::EndsWith(name, ".json")) return LoadFile(name);
  VOXCONV_RETURN_IF_ERROR(CheckDirectory());
  const std::vector<std::string> names = ListDefinitions();
  // Only listed names are looked for, so that no name can lead out of the directories.
  if (!std::binary_search(names.begin(), names.end(), name)) {
    return absl::NotFoundError(absl::StrCat("experiment '", name, "' is unknown; there are ",
                                            absl::StrJoin(names, ", "),
                                            ", and files named FILE.json"));
  }
  for (const std::string& directory : Directories()) {
    const std::string path = (fs::path(directory) / absl::StrCat(name, ".json")).string();
    std::error_code ignored;
    if (!fs::exists(path, ignored)) continue;
    VOXCONV_ASSIGN_OR_RETURN(Definition definition, LoadFile(path));
    if (definition.name != name) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": key 'name' is '", definition.name,
                                                     "'; allowed is '", name, "', after the file"));
    }
    return definition;
  }
  return absl::NotFoundError(absl::StrCat("experiment '", name, "' cannot be read"));
}

}  // namespace voxconv::experiment
