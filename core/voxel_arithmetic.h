// SPDX-License-Identifier: Apache-2.0
// The arithmetic of points and voxels for one point, which the host's reader and every backend
// share, so that all find the same voxels. No result depends on whether a compiler fuses a product
// and a sum.
#ifndef VOXCONV_CORE_VOXEL_ARITHMETIC_H_
#define VOXCONV_CORE_VOXEL_ARITHMETIC_H_

#include <cstdint>
#include <limits>

#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/types.h"

namespace voxconv {

// In which numbers (position - origin) / size is computed. kF32 rounds all three to float32 first,
// as SpConv's PointToVoxel does.
enum class VoxelQuotient { kF64, kF32 };

// A point's place along one axis, in voxels.
constexpr double QuotientOf(VoxelQuotient quotient, double position, double origin, double size) {
  if (quotient == VoxelQuotient::kF64) return (position - origin) / size;
  const float offset = static_cast<float>(position) - static_cast<float>(origin);
  return offset / static_cast<float>(size);
}

// floor(place). Needs a place within the numbers of int32_t.
constexpr int32_t FloorOf(double place) {
  const auto whole = static_cast<int32_t>(place);
  return static_cast<double>(whole) > place ? whole - 1 : whole;
}

// Whether floor(place) is a coordinate. False for NaN.
constexpr bool IsCoordinate(double place) {
  return place >= kMinCoordinate && place < kMaxCoordinate + 1.0;
}

// Where points go. Trivially copyable, so that kernels take it by value.
struct PointGrid {
  double size[3], origin[3];  // of a voxel; corner of voxel (0, 0, 0)
  double low[3], high[3];     // a point is kept where low <= position < high
  int32_t cells[3];           // a point is kept in voxels 0 .. cells - 1; 0: in all
  VoxelQuotient quotient;

  // What Locate found: an axis whose place is no coordinate, or one of these.
  static constexpr int kInside = -1, kOutside = -2;

  constexpr double Place(int axis, double position) const {
    return QuotientOf(quotient, position, origin[axis], size[axis]);
  }

  // The voxel of the point at `xyz`; its batch stays as it is. NaN is never kOutside: it is an
  // error. So is infinity along an axis without a limit.
  constexpr int Locate(const float* xyz, Coordinate& voxel) const {
    double place[3] = {0, 0, 0};
    constexpr double kMost = std::numeric_limits<double>::max();
    bool is_number = true, is_inside = true;
    for (int axis = 0; axis < 3; ++axis) {
      const double position = xyz[axis];
      place[axis] = Place(axis, position);
      is_number = is_number && position == position;
      is_inside = is_inside && position >= low[axis] &&
                  (position < high[axis] || high[axis] > kMost) &&
                  (cells[axis] == 0 || (place[axis] >= 0 && place[axis] < cells[axis]));
    }
    if (is_number && !is_inside) return kOutside;
    for (int axis = 0; axis < 3; ++axis) {
      if (!IsCoordinate(place[axis])) return axis;
    }
    voxel.x = FloorOf(place[0]);
    voxel.y = FloorOf(place[1]);
    voxel.z = FloorOf(place[2]);
    return kInside;
  }
};

// The eight voxels whose centres enclose a point, and their weights. Neighbour k is at corner + (k
// / 4, k / 2 % 2, k % 2) * stride.
struct Trilinear {
  static constexpr int kNeighbours = 8;
  Int3 corner;
  float weights[kNeighbours];

  // False for a point that no voxel can enclose, such as one with NaN.
  constexpr bool Find(const PointGrid& grid, const Int3& stride, const float* xyz) {
    double far[3] = {0, 0, 0};
    for (int axis = 0; axis < 3; ++axis) {
      const double place = grid.Place(axis, xyz[axis]) / stride[axis] - 0.5;
      const double voxel = place * stride[axis];
      if (!(voxel > 2.0 * kMinCoordinate && voxel < 2.0 * kMaxCoordinate)) return false;
      const int32_t low = FloorOf(place);
      corner[axis] = low * stride[axis];
      far[axis] = place - low;
    }
    for (int k = 0; k < kNeighbours; ++k) {
      const double x = k / 4 != 0 ? far[0] : 1.0 - far[0];
      const double y = k / 2 % 2 != 0 ? far[1] : 1.0 - far[1];
      const double z = k % 2 != 0 ? far[2] : 1.0 - far[2];
      weights[k] = static_cast<float>(x * y * z);
    }
    return true;
  }

  // Whether neighbour k is in range; `at` gets its position.
  constexpr bool Neighbour(int k, const Int3& stride, Int3& at) const {
    at = {corner.x + k / 4 * stride.x, corner.y + k / 2 % 2 * stride.y,
          corner.z + k % 2 * stride.z};
    return InRange(at);
  }

  // Makes the weights of the neighbours that are there sum to 1, and the others 0. `rows`: -1 for a
  // neighbour that is not there. If the weights of those that are there sum to 0, all rows
  // become -1.
  constexpr void Normalize(int32_t* rows) {
    double sum = 0;
    for (int k = 0; k < kNeighbours; ++k) {
      if (rows[k] >= 0) sum += static_cast<double>(weights[k]);
    }
    for (int k = 0; k < kNeighbours; ++k) {
      if (!(sum > 0)) rows[k] = -1;
      weights[k] = rows[k] < 0 ? 0.0f : static_cast<float>(static_cast<double>(weights[k]) / sum);
    }
  }
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_VOXEL_ARITHMETIC_H_
