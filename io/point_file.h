// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_POINT_FILE_H_
#define VOXCONV_IO_POINT_FILE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/io/point_cloud.h"

namespace voxconv::io_internal {

// Readers of point files, from their bytes. Clouds have colours r, g, b in [0, 1] and normals nx,
// ny, nz as features where the file has them. Rows that are missing, too many or no numbers are
// refused; NaN is a number. Messages call the file `name`. O(bytes). kDataLoss for damage.

// PCD (Point Cloud Library), as text, binary or compressed: x, y, z, rgb or rgba, normal_x,
// normal_y, normal_z. Other fields are passed over.
absl::StatusOr<PointCloud> ParsePcd(absl::string_view bytes, absl::string_view name);

// Rows of x y z. Further words of a row are passed over.
absl::StatusOr<PointCloud> ParseXyz(absl::string_view bytes, absl::string_view name);
// Rows of x y z nx ny nz.
absl::StatusOr<PointCloud> ParseXyzn(absl::string_view bytes, absl::string_view name);
// Rows of x y z r g b.
absl::StatusOr<PointCloud> ParseXyzrgb(absl::string_view bytes, absl::string_view name);
// The number of points, then rows of x y z, intensity or not, and r g b from 0 to 255 or not. The
// intensity is passed over.
absl::StatusOr<PointCloud> ParsePts(absl::string_view bytes, absl::string_view name);

}  // namespace voxconv::io_internal

#endif  // VOXCONV_IO_POINT_FILE_H_
