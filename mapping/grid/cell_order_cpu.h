// SPDX-License-Identifier: Apache-2.0
// Tables of the terms of cell numbers, for the CPU.
#ifndef VOXCONV_MAPPING_GRID_CELL_ORDER_CPU_H_
#define VOXCONV_MAPPING_GRID_CELL_ORDER_CPU_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "voxconv/core/mapping.h"
#include "voxconv/mapping/grid/cell_order.h"

namespace voxconv {

// Tables of all terms that a problem's lookups can need. A lookup is then three additions. It has
// no division, no range check and no branch, and nothing in it wraps. Host memory.
class CellTermsCpu {
 public:
  static absl::StatusOr<CellTermsCpu> Create(const CellOrder& order, const Box& rows_bounds,
                                             int32_t num_batches, const Int3& min_offset,
                                             const Int3& max_offset,
                                             const ExecutionContext& context);
  // For lookups of the rows of `set`.
  static absl::StatusOr<CellTermsCpu> OfRows(const CellOrder& order, const CoordinateSet& set,
                                             const ExecutionContext& context);
  // For lookups of a problem's outputs shifted by its kernel offsets.
  static absl::StatusOr<CellTermsCpu> OfProblem(const CellOrder& order, const MapProblem& problem,
                                                const ExecutionContext& context);

  // The cell of row + offset; negative if there is none. It refers to the terms, which must outlive
  // it.
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

// An array of a grid, with `bytes` for every `cells` cells.
struct CellArray {
  int64_t bytes, cells;
};

// The memory of a grid.
struct GridPages {
  std::vector<Buffer> arrays;  // that read as zero
  int64_t bytes = 0;           // of the pages that voxels lie in
};

// Reserves a grid's `arrays` from the backend (CpuBackend::ReservePages). A grid has a thousand
// times more cells than voxels: 10^9 cells for one LiDAR frame at 0.05 m. Writing every cell once
// would take seconds and gigabytes, so only the pages that voxels lie in are ever written, and only
// they count. kResourceExhausted if they and `extra_bytes` are more than `limit_mib` or than what
// the backend has left, or if the whole grid is past the address space. O(N).
absl::StatusOr<GridPages> ReserveCells(const CellOrder& order, const CoordinateSet& inputs,
                                       absl::Span<const CellArray> arrays, int64_t extra_bytes,
                                       int64_t limit_mib, absl::string_view storage,
                                       const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_GRID_CELL_ORDER_CPU_H_
