// SPDX-License-Identifier: Apache-2.0
// Keys of fewer bits than core/coordinate_key.h's, for sorting.
#ifndef VOXCONV_BACKENDS_CPU_COMPACT_KEY_H_
#define VOXCONV_BACKENDS_CPU_COMPACT_KEY_H_

#include <algorithm>
#include <cstdint>

#include "absl/numeric/bits.h"
#include "voxconv/core/types.h"

namespace voxconv {

// Keys of the voxels in one box. They hold coordinates relative to the lower corner, in as many
// bits as the box needs: about 30 for a LiDAR frame. A radix sort then takes 3 passes instead of 5
// or 6. Compact keys have the same order as packed keys (core/coordinate_key.h).
class CompactKeyFormat {
 public:
  // For rows within `bounds` with batches below `num_batches`. On each axis all rows must be equal
  // to bounds.lo modulo `tensor_stride`.
  CompactKeyFormat(const Box& bounds, const Int3& tensor_stride, int32_t num_batches)
      : lo_(bounds.lo) {
    int total = 0;
    for (int axis = 2; axis >= 0; --axis) {
      // The powers of two in the tensor stride are low bits that all rows have in common.
      drop_[axis] = absl::countr_zero(static_cast<uint32_t>(tensor_stride[axis]));
      shift_[axis] = total;
      const int64_t extent = int64_t{bounds.hi[axis]} - bounds.lo[axis];
      bits_[axis] = absl::bit_width(static_cast<uint64_t>(std::max<int64_t>(extent, 0))) -
                    std::min<int>(drop_[axis], absl::bit_width(static_cast<uint64_t>(extent)));
      total += bits_[axis];
    }
    batch_shift_ = total;
    total_bits_ = total + absl::bit_width(static_cast<uint32_t>(std::max(num_batches - 1, 0)));
  }

  int total_bits() const { return total_bits_; }

  uint64_t Pack(const Coordinate& c) const {
    return BatchTerm(c.b) | AxisTerm(0, c.x) | AxisTerm(1, c.y) | AxisTerm(2, c.z);
  }
  Coordinate Unpack(uint64_t key) const {
    return {static_cast<int32_t>(key >> batch_shift_), Axis(0, key), Axis(1, key), Axis(2, key)};
  }

  // The fields of a key. Pack joins them.
  uint64_t BatchTerm(int32_t batch) const { return static_cast<uint64_t>(batch) << batch_shift_; }
  uint64_t AxisTerm(int axis, int32_t value) const {
    return static_cast<uint64_t>(static_cast<uint32_t>(value - lo_[axis]) >> drop_[axis])
           << shift_[axis];
  }

 private:
  int32_t Axis(int axis, uint64_t key) const {
    const uint64_t field = key >> shift_[axis] & ((uint64_t{1} << bits_[axis]) - 1);
    return static_cast<int32_t>(field << drop_[axis]) + lo_[axis];
  }

  Int3 lo_, drop_, shift_, bits_;
  int batch_shift_ = 0;
  int total_bits_ = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_COMPACT_KEY_H_
