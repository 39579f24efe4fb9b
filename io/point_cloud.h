// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_POINT_CLOUD_H_
#define VOXCONV_IO_POINT_CLOUD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace voxconv {

// Points in host memory, in the order of their source. Coordinates are float64, so that
// voxelisation divides exactly the numbers of the file.
struct PointCloud {
  std::vector<double> xyz;                 // [N, 3], metres for scans, the file's unit otherwise
  std::vector<float> features;             // [N, C] row-major, C = feature_names.size()
  std::vector<std::string> feature_names;  // [C], e.g. "intensity"
  int64_t dropped = 0;                     // rows left out because they held NaN or Inf
  int64_t cropped = 0;                     // rows left out because they lay outside a range
  bool from_mesh = false;                  // drawn on its surface

  int64_t size() const { return static_cast<int64_t>(xyz.size() / 3); }
  int64_t channels() const { return static_cast<int64_t>(feature_names.size()); }
};

// Checks that the sizes of the arrays agree. kInvalidArgument says which do not.
absl::Status ValidatePointCloud(const PointCloud& cloud);

// Removes rows with NaN or Inf in a coordinate or feature, keeps the order of the others, and adds
// the number of rows removed to cloud.dropped. O(N C).
void DropNonFiniteRows(PointCloud& cloud);

// Moves the bounding box's centre of the [N, 3] points to the origin.
void Centre(std::vector<double>& xyz);

// Centre, and scales the farthest point to distance 1 (objects in the unit sphere, as H-CNN
// voxelises them). Points that all coincide are only moved.
void ScaleIntoUnitSphere(std::vector<double>& xyz);

}  // namespace voxconv

#endif  // VOXCONV_IO_POINT_CLOUD_H_
