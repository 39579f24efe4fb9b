// Cell numbers in tables, for the CPU.
#ifndef VOXCONV_MAPPING_GRID_CELL_ORDER_CPU_H_
#define VOXCONV_MAPPING_GRID_CELL_ORDER_CPU_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/mapping.h"
#include "mapping/grid/cell_order.h"

namespace voxconv {

// All terms that a problem's lookups can ask for, in tables: a lookup is three additions, with no
// division, no range check and no branch, and nothing to wrap.
class CellTermsCpu {
 public:
  static absl::StatusOr<CellTermsCpu> Create(const CellOrder& order, const Box& rows_bounds,
                                             int32_t num_batches, const Int3& min_offset,
                                             const Int3& max_offset,
                                             const ExecutionContext& context);
  // For lookups of rows of `set` as they are.
  static absl::StatusOr<CellTermsCpu> OfRows(const CellOrder& order, const CoordinateSet& set,
                                             const ExecutionContext& context);
  // For lookups of a problem's outputs shifted by its kernel offsets.
  static absl::StatusOr<CellTermsCpu> OfProblem(const CellOrder& order, const MapProblem& problem,
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
