// SPDX-License-Identifier: Apache-2.0
// A part of space, to which an input is cut as it is read.
#ifndef VOXCONV_IO_RANGE_H_
#define VOXCONV_IO_RANGE_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/io/point_cloud.h"
#include "voxconv/io/voxelize.h"

namespace voxconv {

// Holds p where low <= p < high along all three axes.
struct Range {
  std::array<double, 3> low, high;
};

// "-50,-50,-3,50,50,1": xmin, ymin, zmin, xmax, ymax, zmax. kInvalidArgument for another text, for
// NaN, and for an axis whose low is not below its high; the message begins with `name`.
absl::StatusOr<Range> ParseRange(absl::string_view name, absl::string_view text);

// Removes the points outside the range, in the cloud's unit, and adds their number to
// cloud.cropped. The others keep their order. A point with NaN is nowhere, and stays for Voxelize
// to refuse. O(N C).
void CropToRange(const Range& range, PointCloud& cloud);
// The same for voxels. The range is in voxels.
void CropToRange(const Range& range, VoxelizedCloud& cloud);
// kInvalidArgument, with `input` before it, if nothing is left of a cloud that had something.
absl::Status CheckLeft(const std::string& input, int64_t left, int64_t cropped);

}  // namespace voxconv

#endif  // VOXCONV_IO_RANGE_H_
