// The numbering of a grid's cells.
#ifndef VOXCONV_MAPPING_GRID_CELL_ORDER_H_
#define VOXCONV_MAPPING_GRID_CELL_ORDER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/mapping.h"

namespace voxconv {

// Numbers the cells of each batch sample over the inputs' bounds, one cell a lattice point of their
// tensor stride, in bricks of bricks: the cells of an inner brick are consecutive, and so are the
// inner bricks of an outer one. With bricks of a cache word and of a page, a kernel's reach, and a
// surface, touch few of each. The number is a sum of one term an axis and one for the sample.
// Trivially copyable: kernels take it by value.
class CellOrder {
 public:
  // Any sum with this term in it is negative.
  static constexpr int64_t kNoCell = INT64_MIN / 8;

  // Bricks by the log2 of their extent: `inner_bits` in cells, `outer_bits` in inner bricks.
  CellOrder(const CoordinateSet& inputs, const Int3& inner_bits, const Int3& outer_bits);

  // The bricks of either storage, the same for every backend, so that all need as much memory.
  // Dense: 16 cells of 4 bytes are one cache line and 64 lines one page, what a touched cell costs.
  static CellOrder Dense(const CoordinateSet& inputs) {
    return CellOrder(inputs, {1, 1, 2}, {2, 2, 2});
  }
  // Bitmap: a 64-bit word is a brick of 4 x 4 x 4, so that the 27 neighbours of a voxel lie in at
  // most 8 words; a page is one of 8 x 8 x 8 words.
  static CellOrder Bitmap(const CoordinateSet& inputs) {
    return CellOrder(inputs, {2, 2, 2}, {3, 3, 3});
  }

  // kResourceExhausted if a grid of `bytes` for every `cells` of its cells (which must divide those
  // of a brick) and `extra_bytes` is above `limit_mib`. Within the limit no number overflows.
  absl::Status CheckLimit(int64_t bytes, int64_t cells, int64_t extra_bytes, int64_t limit_mib,
                          absl::string_view storage) const;

  int64_t num_cells() const { return sample_cells_ * num_batches_; }
  // The axis' term for any position, kNoCell outside the bounds and between lattice points.
  constexpr int64_t AxisTerm(int axis, int64_t position) const {
    const Axis& a = axes_[axis];
    if (position < a.lo || position > a.hi) return kNoCell;
    const auto distance = static_cast<uint32_t>(position - a.lo);
    // Strides are mostly powers of two, and a division costs more than all the rest.
    const bool shifts = a.stride_bits >= 0;
    const uint32_t cell = shifts ? distance >> a.stride_bits : distance / a.stride;
    if ((shifts ? cell << a.stride_bits : cell * a.stride) != distance) return kNoCell;
    const uint32_t inner = cell & ((1u << a.inner_bits) - 1);
    const uint32_t outer = cell >> a.inner_bits & ((1u << a.outer_bits) - 1);
    const uint32_t rest = cell >> (a.inner_bits + a.outer_bits);
    return inner * a.inner_weight + outer * a.outer_weight + rest * a.rest_weight;
  }
  constexpr int64_t BatchTerm(int32_t batch) const {
    return batch < num_batches_ ? batch * sample_cells_ : kNoCell;
  }
  // The cell of a position; negative if there is none.
  constexpr int64_t CellOf(const Coordinate& c) const {
    return BatchTerm(c.b) + AxisTerm(0, c.x) + AxisTerm(1, c.y) + AxisTerm(2, c.z);
  }

 private:
  // An axis' cell number is cut into the digits inner, outer and the rest; a digit's weight is the
  // distance of cells that differ by one in it.
  struct Axis {
    int32_t lo, hi;   // bounds
    uint32_t stride;  // tensor stride
    int stride_bits;  // its log2, or -1
    int inner_bits, outer_bits;
    int64_t inner_weight, outer_weight, rest_weight;
  };
  Axis axes_[3];
  int64_t sample_cells_ = 0;
  int32_t num_batches_ = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_GRID_CELL_ORDER_H_
