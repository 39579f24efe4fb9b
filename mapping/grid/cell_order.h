// SPDX-License-Identifier: Apache-2.0
// The numbering of a grid's cells.
#ifndef VOXCONV_MAPPING_GRID_CELL_ORDER_H_
#define VOXCONV_MAPPING_GRID_CELL_ORDER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/mapping.h"

namespace voxconv {

// Numbers the cells of a grid over the inputs' bounds, for each sample. A cell is a lattice point
// of the inputs' tensor stride. Cells form inner bricks, and these form outer bricks. The cells of
// an inner brick have consecutive numbers, and so have the inner bricks of an outer one. If an
// inner brick is as large as a cache line or a word, and an outer one as large as a page, then a
// kernel's reach touches few of each, and so does a surface. A cell's number is the sum of one term
// for each axis and one for the sample. The class is trivially copyable, so that kernels take it by
// value.
class CellOrder {
 public:
  // A sum with this term is negative.
  static constexpr int64_t kNoCell = INT64_MIN / 8;

  // The arguments are the log2 of the bricks' extents: `inner_bits` in cells, `outer_bits` in inner
  // bricks.
  CellOrder(const CoordinateSet& inputs, const Int3& inner_bits, const Int3& outer_bits);

  // The bricks of the two storages. They are the same on every backend, so that all backends need
  // the same memory.
  // Dense: 16 cells of 4 bytes are one cache line, and 64 lines are one page. The first write to a
  // cell costs its page.
  static CellOrder Dense(const CoordinateSet& inputs) {
    return CellOrder(inputs, {1, 1, 2}, {2, 2, 2});
  }
  // Bitmap: a 64-bit word is a brick of 4 x 4 x 4 cells, so that the 27 neighbours of a voxel lie
  // in at most 8 words. A page is a brick of 8 x 8 x 8 words.
  static CellOrder Bitmap(const CoordinateSet& inputs) {
    return CellOrder(inputs, {2, 2, 2}, {3, 3, 3});
  }

  // Checks the size of a grid that has `bytes` for every `cells` cells, plus `extra_bytes`. `cells`
  // must divide the number of cells of a brick. kResourceExhausted if the grid exceeds `limit_mib`.
  // Within the limit, no cell number overflows.
  absl::Status CheckLimit(int64_t bytes, int64_t cells, int64_t extra_bytes, int64_t limit_mib,
                          absl::string_view storage) const;

  int64_t num_cells() const { return sample_cells_ * num_batches_; }
  // The axis' term for a position. It is kNoCell outside the bounds and between lattice points. Any
  // position is allowed.
  constexpr int64_t AxisTerm(int axis, int64_t position) const {
    const Axis& a = axes_[axis];
    if (position < a.lo || position > a.hi) return kNoCell;
    const auto distance = static_cast<uint32_t>(position - a.lo);
    // Most strides are powers of two, and a division costs more than the rest of this function.
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
  // An axis' cell number is cut into three digits: inner, outer and the rest. A digit's weight is
  // the distance between cells that differ by one in this digit.
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
