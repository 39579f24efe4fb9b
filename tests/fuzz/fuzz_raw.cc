// SPDX-License-Identifier: Apache-2.0
// A raw scan. The first line is "name fields dtype", each of them possibly empty, the rest the
// file's bytes; what is read is voxelised.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "voxconv/io/read_point_cloud.h"
#include "voxconv/io/voxelize.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = bytes.find('\n');
  if (end == absl::string_view::npos) return 0;
  const std::vector<std::string> words = absl::StrSplit(bytes.substr(0, end), ' ');
  if (words.size() != 3) return 0;
  voxconv::ReadOptions options;
  options.fields = words[1];
  options.dtype_in = words[2];
  const absl::StatusOr<voxconv::PointCloud> cloud =
      voxconv::ParsePointCloud(bytes.substr(end + 1), words[0], options);
  if (!cloud.ok()) return 0;
  if (!voxconv::ValidatePointCloud(*cloud).ok()) std::abort();
  (void)voxconv::Voxelize(*cloud, {});
  return 0;
}
