// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/point_cloud.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace voxconv {

absl::Status ValidatePointCloud(const PointCloud& cloud) {
  if (cloud.xyz.size() % 3 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("point cloud: xyz holds ", cloud.xyz.size(), " values, not a multiple of 3"));
  }
  const int64_t expected = cloud.size() * cloud.channels();
  if (static_cast<int64_t>(cloud.features.size()) != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("point cloud: features holds ", cloud.features.size(), " values, expected ",
                     cloud.size(), " points x ", cloud.channels(), " channels = ", expected));
  }
  return absl::OkStatus();
}

void DropNonFiniteRows(PointCloud& cloud) {
  const auto finite = [](auto value) { return std::isfinite(value); };
  const int64_t channels = cloud.channels();
  int64_t kept = 0;
  for (int64_t row = 0; row < cloud.size(); ++row) {
    const auto xyz = cloud.xyz.begin() + 3 * row;
    const auto features = cloud.features.begin() + channels * row;
    if (!std::all_of(xyz, xyz + 3, finite) || !std::all_of(features, features + channels, finite)) {
      continue;
    }
    if (kept != row) {
      std::copy(xyz, xyz + 3, cloud.xyz.begin() + 3 * kept);
      std::copy(features, features + channels, cloud.features.begin() + channels * kept);
    }
    ++kept;
  }
  cloud.dropped += cloud.size() - kept;
  cloud.xyz.resize(static_cast<size_t>(3 * kept));
  cloud.features.resize(static_cast<size_t>(channels * kept));
}

void Centre(std::vector<double>& xyz) {
  for (size_t axis = 0; axis < 3; ++axis) {
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    for (size_t i = axis; i < xyz.size(); i += 3) {
      low = std::min(low, xyz[i]);
      high = std::max(high, xyz[i]);
    }
    const double centre = low + (high - low) / 2;
    for (size_t i = axis; i < xyz.size(); i += 3) xyz[i] -= centre;
  }
}

void ScaleIntoUnitSphere(std::vector<double>& xyz) {
  Centre(xyz);
  double farthest = 0;
  for (size_t i = 0; i < xyz.size(); i += 3) {
    double square = 0;
    for (size_t axis = 0; axis < 3; ++axis) square += xyz[i + axis] * xyz[i + axis];
    farthest = std::max(farthest, square);
  }
  if (farthest == 0) return;
  const double radius = std::sqrt(farthest);
  for (double& value : xyz) value /= radius;
}

}  // namespace voxconv
