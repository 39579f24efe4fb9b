// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/data_files.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"

namespace voxconv::measure {

namespace fs = std::filesystem;

namespace {

// The file that this code was loaded from: the program, or a shared library.
fs::path OwnFile() {
  Dl_info info = {};
  std::error_code ignored;
  if (dladdr(reinterpret_cast<const void*>(&CheckDataDirectory), &info) == 0) return {};
  return fs::canonical(info.dli_fname, ignored);
}

}  // namespace

std::vector<std::string> DataDirectories(const char* environment_variable,
                                         absl::string_view installed_folder,
                                         absl::string_view source_folder) {
  std::vector<fs::path> candidates;
  if (const char* set = std::getenv(environment_variable); set != nullptr && *set != '\0') {
    candidates.emplace_back(set);
  }
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  if (const fs::path own = OwnFile(); !own.empty() && own != program) {
    candidates.push_back(own.parent_path() / "share/voxconv" / std::string(installed_folder));
  }
  if (!program.empty()) {
    candidates.push_back(program.parent_path().parent_path() / "share/voxconv" /
                         std::string(installed_folder));
  }
  candidates.push_back(fs::path(VOXCONV_SOURCE_EXPERIMENTS_DIR) / std::string(source_folder));
  std::vector<std::string> directories;
  for (const fs::path& path : candidates) {
    if (fs::is_directory(path, ignored)) directories.push_back(path.string());
  }
  return directories;
}

absl::Status CheckDataDirectory(const char* environment_variable) {
  const char* set = std::getenv(environment_variable);
  std::error_code ignored;
  if (set == nullptr || *set == '\0' || fs::is_directory(set, ignored)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(environment_variable, " '", set, "': is no directory"));
}

}  // namespace voxconv::measure
