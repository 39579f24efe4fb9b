// SPDX-License-Identifier: Apache-2.0
// Which outputs an input of a strided layer can have.
#ifndef VOXCONV_MAPPING_GRID_STRIDED_REACH_H_
#define VOXCONV_MAPPING_GRID_STRIDED_REACH_H_

#include <cstdint>

#include "voxconv/core/geometry.h"

namespace voxconv {

// Goes over the kernel offsets d for which p - d is on the lattice of the outputs. Axes are
// independent of each other, and the offsets of an axis are an arithmetic progression. Trivially
// copyable, so that kernels take it by value.
class StridedReach {
 public:
  explicit StridedReach(const ConvGeometry& geometry);

  // The most offsets that one input can have.
  constexpr int64_t max_outputs() const { return max_outputs_; }

  // Calls visit(q, k) for each offset k that leads input p to a lattice point q, in the order of k.
  template <typename Visit>
  constexpr void Each(const Coordinate& p, const Visit& visit) const {
    for (int32_t i = 0; i < axes_[0].count; ++i) {
      const int32_t x = p.x - axes_[0].Offset(i);
      if (x % axes_[0].step != 0) continue;
      for (int32_t j = 0; j < axes_[1].count; ++j) {
        const int32_t y = p.y - axes_[1].Offset(j);
        if (y % axes_[1].step != 0) continue;
        for (int32_t l = 0; l < axes_[2].count; ++l) {
          const int32_t z = p.z - axes_[2].Offset(l);
          if (z % axes_[2].step != 0) continue;
          visit(Coordinate{p.b, x, y, z}, (i * axes_[1].count + j) * axes_[2].count + l);
        }
      }
    }
  }

 private:
  struct Axis {
    int32_t first, increment, count;  // the progression of the offsets
    int32_t step;                     // output tensor stride

    constexpr int32_t Offset(int32_t i) const { return first + i * increment; }
  };
  Axis axes_[3];
  int64_t max_outputs_ = 1;
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_GRID_STRIDED_REACH_H_
