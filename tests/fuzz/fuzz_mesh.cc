// SPDX-License-Identifier: Apache-2.0
// A file of the format that VOXCONV_FUZZ_FILE names by its extension: reading, sampling, and what a
// cloud promises. The build makes one target for each format.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "voxconv/io/read_point_cloud.h"
#include "voxconv/io/voxelize.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy of its own size, so that a read past the end is found.
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  voxconv::ReadOptions options;
  options.samples = 20;
  options.into_unit_sphere = size % 2 == 1;
  const absl::StatusOr<voxconv::PointCloud> cloud =
      voxconv::ParsePointCloud(bytes, VOXCONV_FUZZ_FILE, options);
  if (!cloud.ok()) {
    // One line, and not the whole file.
    if (cloud.status().message().empty() || cloud.status().message().size() > 1000 ||
        absl::string_view(cloud.status().message()).find('\n') != absl::string_view::npos) {
      std::abort();
    }
    return 0;
  }
  if (!voxconv::ValidatePointCloud(*cloud).ok()) std::abort();
  (void)voxconv::Voxelize(*cloud, {});
  return 0;
}
