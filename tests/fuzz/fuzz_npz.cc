// SPDX-License-Identifier: Apache-2.0
// A .npz archive, as arrays and as a point cloud.
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "voxconv/io/npy.h"
#include "voxconv/io/read_point_cloud.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)voxconv::ParseNpz(bytes, "fuzz.npz");
  (void)voxconv::ParsePointCloud(bytes, "fuzz.npz", {});
  return 0;
}
