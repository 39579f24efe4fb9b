// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_READ_RAW_H_
#define VOXCONV_IO_READ_RAW_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/io/point_cloud.h"

namespace voxconv {

// Tables of floats without a header, little-endian, one row for each point: KITTI's .bin, nuScenes'
// .pcd.bin and variants of them. The caller must say what the columns are.
enum class RawDtype { kFloat16, kFloat32, kFloat64 };

absl::string_view RawDtypeName(RawDtype dtype);  // "f16", "f32", "f64"
int64_t RawItemSize(RawDtype dtype);             // bytes

struct RawFormat {
  std::vector<std::string> fields;  // the columns; must have x, y and z; "_" is skipped
  RawDtype dtype = RawDtype::kFloat32;
  bool dtype_known = false;  // the file's format fixes the dtype; messages suggest no other one
  // Where the scan is, in metres. Coordinates are plausible within 1000 km of it.
  std::array<double, 3> origin = {0, 0, 0};
};

// "x,y,z,intensity,dt". Errors: kInvalidArgument for an empty or repeated name, or a missing x, y
// or z.
absl::StatusOr<std::vector<std::string>> ParseRawFields(absl::string_view text);

// "f16", "f32" or "f64". Errors: kInvalidArgument.
absl::StatusOr<RawDtype> ParseRawDtype(absl::string_view text);

// Reads the points of a table. Fields other than x, y and z become features. Rows with NaN or Inf
// are dropped and counted. Messages call the input `name`. O(bytes). kInvalidArgument if the size
// is not a multiple of a row's, if more than half of the rows cannot be coordinates in metres near
// the origin (then the dtype or the fields are wrong, or the cloud is georeferenced), and if no
// finite row is left.
absl::StatusOr<PointCloud> ParseRawPoints(absl::string_view bytes, const RawFormat& format,
                                          absl::string_view name);

}  // namespace voxconv

#endif  // VOXCONV_IO_READ_RAW_H_
