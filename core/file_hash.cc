// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/file_hash.h"

#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/core/fnv.h"

namespace voxconv {

absl::StatusOr<std::string> HashFile(const std::string& path) {
  constexpr size_t kBlock = 1 << 20;
  std::ifstream file(path, std::ios::binary);
  Fnv1a hash;
  std::vector<char> block(kBlock);
  while (file.read(block.data(), kBlock) || file.gcount() > 0) {
    hash.AddText({block.data(), static_cast<size_t>(file.gcount())});
  }
  if (!file.eof()) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  return absl::StrCat(absl::Hex(hash.value(), absl::kZeroPad16));
}

}  // namespace voxconv
