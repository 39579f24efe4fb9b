// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/data/content_hash.h"

#include <cstdint>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "voxconv/core/file_hash.h"
#include "voxconv/core/fnv.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {

absl::StatusOr<std::string> HashFiles(absl::Span<const std::string> paths) {
  Fnv1a hash;
  for (const std::string& path : paths) {
    VOXCONV_ASSIGN_OR_RETURN(const std::string of_file, HashFile(path));
    hash.AddText(of_file);
  }
  return absl::StrCat(absl::Hex(hash.value(), absl::kZeroPad16));
}

std::string HashNamesAndSizes(const std::string& folder, absl::Span<const std::string> paths) {
  Fnv1a hash;
  for (const std::string& path : paths) {
    std::error_code error;
    const uintmax_t size = std::filesystem::file_size(path, error);
    const std::string name = std::filesystem::path(path).lexically_relative(folder).string();
    hash.AddText(absl::StrCat(name, "\n", error ? "none" : absl::StrCat(size), "\n"));
  }
  return absl::StrCat(absl::Hex(hash.value(), absl::kZeroPad16));
}

}  // namespace voxconv
