// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/octree/octree.h"

#include <algorithm>

#include "absl/numeric/bits.h"
#include "voxconv/core/integer.h"

namespace voxconv {

OctreeCube::OctreeCube(const CoordinateSet& voxels)
    : num_samples_(voxels.size() == 0 ? 0 : voxels.num_batches()) {
  const Box& bounds = voxels.bounds();
  for (int axis = 0; axis < 3; ++axis) {
    const auto stride = static_cast<uint32_t>(voxels.tensor_stride()[axis]);
    axes_[axis] = {.lo = bounds.lo[axis],
                   .span = static_cast<uint32_t>(bounds.hi[axis] - bounds.lo[axis]),
                   .stride = stride,
                   .stride_bits = absl::has_single_bit(stride) ? absl::countr_zero(stride) : -1};
    depth_ = std::max<int>(depth_, absl::bit_width(axes_[axis].span / stride));
  }
}

int OctreeCube::key_bits() const {
  return 3 * depth_ + absl::bit_width(static_cast<uint32_t>(std::max(num_samples_ - 1, 0)));
}

void OctreeLevels::SetBegin(const OctreeCube& cube, int octants_per_link) {
  begin[0] = 0;
  for (int level = 0; level <= cube.depth(); ++level) {
    const int64_t octants = level == 0 ? cube.num_samples() : 8 * nodes[level - 1];
    begin[level + 1] = begin[level] + CeilDiv(octants, octants_per_link);
  }
}

}  // namespace voxconv
