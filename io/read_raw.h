#ifndef VOXCONV_IO_READ_RAW_H_
#define VOXCONV_IO_READ_RAW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "io/point_cloud.h"

namespace voxconv {

// Headerless tables of floats, one row a point, little-endian: KITTI's .bin, nuScenes' .pcd.bin and
// variants of them. The bytes say nothing of their own layout, so it has to be told.
enum class RawDtype { kFloat16, kFloat32, kFloat64 };

absl::string_view RawDtypeName(RawDtype dtype);  // "f16", "f32", "f64"
int64_t RawItemSize(RawDtype dtype);             // bytes

struct RawFormat {
  std::vector<std::string> fields;  // a row's columns in order; holds x, y and z; "_" is skipped
  RawDtype dtype = RawDtype::kFloat32;
  bool dtype_known = false;  // said by the file, so that no message suggests another
};

// "x,y,z,intensity,dt". Errors: kInvalidArgument for an empty or repeated name, or a missing x, y
// or z.
absl::StatusOr<std::vector<std::string>> ParseRawFields(absl::string_view text);

// "f16", "f32" or "f64". Errors: kInvalidArgument.
absl::StatusOr<RawDtype> ParseRawDtype(absl::string_view text);

// The table's points; fields other than x, y and z become features. Rows with NaN or Inf are
// dropped and counted. `name` is what messages call the input. O(bytes). Errors: kInvalidArgument
// when the size is not a multiple of the row, when more than half of the rows cannot be coordinates
// in metres (the dtype or the fields must be wrong), or when no finite row is left.
absl::StatusOr<PointCloud> ParseRawPoints(absl::string_view bytes, const RawFormat& format,
                                          absl::string_view name);

}  // namespace voxconv

#endif  // VOXCONV_IO_READ_RAW_H_
