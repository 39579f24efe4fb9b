// The numbering of a grid's cells.
#ifndef VOXCONV_MAPPING_GRID_CELL_ORDER_CPU_H_
#define VOXCONV_MAPPING_GRID_CELL_ORDER_CPU_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/mapping.h"

namespace voxconv {

// Numbers the cells of each batch sample over the inputs' bounds, one cell a lattice point of their
// tensor stride, in bricks of bricks: the cells of an inner brick are consecutive, and so are the
// inner bricks of an outer one. With bricks of a cache word and of a page, a kernel's reach, and a
// surface, touch few of each. The number is a sum of one term an axis and one for the sample.
class CellOrderCpu {
 public:
  // Any sum with this term in it is negative.
  static constexpr int64_t kNoCell = INT64_MIN / 8;

  // Bricks by the log2 of their extent: `inner_bits` in cells, `outer_bits` in inner bricks.
  CellOrderCpu(const CoordinateSet& inputs, const Int3& inner_bits, const Int3& outer_bits);

  // kResourceExhausted if a grid of `bytes` for every `cells` of its cells (which must divide those
  // of a brick) and `extra_bytes` is above `limit_mib`. Within the limit no number overflows.
  absl::Status CheckLimit(int64_t bytes, int64_t cells, int64_t extra_bytes, int64_t limit_mib,
                          absl::string_view storage) const;

  int64_t num_cells() const { return sample_cells_ * num_batches_; }
  // The axis' term for any position, kNoCell outside the bounds and between lattice points.
  int64_t AxisTerm(int axis, int64_t position) const;
  int64_t BatchTerm(int32_t batch) const {
    return batch < num_batches_ ? batch * sample_cells_ : kNoCell;
  }

 private:
  Box bounds_;
  Int3 tensor_stride_;
  // An axis' cell number is cut into the digits inner, outer and the rest; a digit's weight is the
  // distance of cells that differ by one in it.
  struct Axis {
    int inner_bits, outer_bits;
    int64_t inner_weight, outer_weight, rest_weight;
  };
  Axis axes_[3];
  int64_t sample_cells_ = 0;
  int32_t num_batches_ = 0;
};

// All terms that a problem's lookups can ask for, in tables: a lookup is three additions, with no
// division, no range check and no branch, and nothing to wrap.
class CellTermsCpu {
 public:
  static absl::StatusOr<CellTermsCpu> Create(const CellOrderCpu& order, const Box& rows_bounds,
                                             int32_t num_batches, const Int3& min_offset,
                                             const Int3& max_offset,
                                             const ExecutionContext& context);
  // For lookups of rows of `set` as they are.
  static absl::StatusOr<CellTermsCpu> OfRows(const CellOrderCpu& order, const CoordinateSet& set,
                                             const ExecutionContext& context);
  // For lookups of a problem's outputs shifted by its kernel offsets.
  static absl::StatusOr<CellTermsCpu> OfProblem(const CellOrderCpu& order,
                                                const MapProblem& problem,
                                                const ExecutionContext& context);

  // Cell of row + offset; negative if there is none.
  class Shifted {
   public:
    Shifted(const CellTermsCpu& terms, const Int3& offset);
    int64_t operator()(const Coordinate& c) const {
      return batch_[c.b] + axis_[0][c.x + shift_[0]] + axis_[1][c.y + shift_[1]] +
             axis_[2][c.z + shift_[2]];
    }

   private:
    const int64_t* batch_;
    const int64_t* axis_[3];
    int64_t shift_[3];
  };

 private:
  Array<int64_t> batch_, axis_[3];
  Int3 first_;  // position of the first entry of each axis
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_GRID_CELL_ORDER_CPU_H_
