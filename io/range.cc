// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/range.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace voxconv {
namespace {

bool Holds(const Range& range, const std::array<double, 3>& point) {
  bool inside = true;
  for (size_t axis = 0; axis < 3; ++axis) {
    if (std::isnan(point[axis])) return true;
    inside = inside && point[axis] >= range.low[axis] && point[axis] < range.high[axis];
  }
  return inside;
}

// Row `from` of [N, channels] values, or nothing, at row `to`.
void MoveRow(std::vector<float>& values, int64_t channels, int64_t from, int64_t to) {
  std::copy_n(values.begin() + from * channels, channels, values.begin() + to * channels);
}

}  // namespace

absl::StatusOr<Range> ParseRange(absl::string_view name, absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  Range range;
  bool is_range = parts.size() == 6;
  for (size_t i = 0; is_range && i < 6; ++i) {
    is_range = absl::SimpleAtod(parts[i], i < 3 ? &range.low[i] : &range.high[i - 3]);
  }
  for (size_t axis = 0; is_range && axis < 3; ++axis) {
    is_range = range.low[axis] < range.high[axis];  // not where one is NaN
  }
  if (is_range) return range;
  return absl::InvalidArgumentError(absl::StrCat(
      name, " '", text,
      "': six numbers xmin,ymin,zmin,xmax,ymax,zmax are needed, each least one below its "
      "greatest"));
}

void CropToRange(const Range& range, PointCloud& cloud) {
  const int64_t channels = cloud.channels();
  int64_t kept = 0;
  for (int64_t row = 0; row < cloud.size(); ++row) {
    const double* point = cloud.xyz.data() + 3 * row;
    if (!Holds(range, {point[0], point[1], point[2]})) continue;
    if (kept != row) {
      std::copy_n(point, 3, cloud.xyz.begin() + 3 * kept);
      MoveRow(cloud.features, channels, row, kept);
    }
    ++kept;
  }
  cloud.cropped += cloud.size() - kept;
  cloud.xyz.resize(static_cast<size_t>(3 * kept));
  cloud.features.resize(static_cast<size_t>(channels * kept));
}

void CropToRange(const Range& range, VoxelizedCloud& cloud) {
  int64_t kept = 0;
  for (int64_t row = 0; row < cloud.size(); ++row) {
    const Coordinate& voxel = cloud.coords[row];
    const std::array<double, 3> point = {static_cast<double>(voxel.x), static_cast<double>(voxel.y),
                                         static_cast<double>(voxel.z)};
    if (!Holds(range, point)) continue;
    cloud.coords[kept] = voxel;
    if (kept != row) MoveRow(cloud.features, cloud.channels, row, kept);
    ++kept;
  }
  cloud.cropped += cloud.size() - kept;
  cloud.coords.resize(static_cast<size_t>(kept));
  cloud.features.resize(static_cast<size_t>(cloud.channels * kept));
}

absl::Status CheckLeft(const std::string& input, int64_t left, int64_t cropped) {
  if (left > 0 || cropped == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(input, ": none of its ", cropped, " points lies in the range"));
}

}  // namespace voxconv
