// SPDX-License-Identifier: Apache-2.0
// Numbers of cells in a bounding box. Plain arithmetic, for the host and the device.
#ifndef VOXCONV_BACKENDS_CUDA_BOX_CELLS_H_
#define VOXCONV_BACKENDS_CUDA_BOX_CELLS_H_

#include <algorithm>
#include <bit>
#include <cstdint>

#include "voxconv/core/types.h"

namespace voxconv {

// Numbers the cells of a box of `batches` samples, at most 2^63, in the order of their keys.
struct BoxCells {
  constexpr BoxCells(const Box& box, int32_t batches) : lo(box.lo) {
    const auto extent = [&](int axis) {
      return static_cast<uint64_t>(int64_t{box.hi[axis]} - box.lo[axis] + 1);
    };
    extent_y = extent(1);
    extent_z = extent(2);
    batch = extent(0) * extent_y * extent_z;  // at most 2^54
    const uint64_t cells = batch * static_cast<uint64_t>(std::max(batches, 1));
    bits = std::max(1, static_cast<int>(std::bit_width(cells - 1)));
  }

  // Requires that `c` is in the box.
  constexpr uint64_t operator()(const Coordinate& c) const {
    const uint64_t x = static_cast<uint32_t>(c.x - lo.x), y = static_cast<uint32_t>(c.y - lo.y),
                   z = static_cast<uint32_t>(c.z - lo.z);
    return c.b * batch + (x * extent_y + y) * extent_z + z;
  }

  Int3 lo;
  uint64_t extent_y = 0, extent_z = 0;
  uint64_t batch = 0;  // cells of a sample
  int bits = 0;        // of a cell's number
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_BOX_CELLS_H_
