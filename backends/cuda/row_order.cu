// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/box_cells.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_primitives.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/backends/cuda/row_order.h"

namespace voxconv {
namespace {

constexpr int kBlock = 256;

template <typename Key>
__global__ void __launch_bounds__(kBlock)
    CellsOfRows(const Coordinate* rows, int64_t size, BoxCells cells, Key* keys) {
  OverlapLaunches();
  const int64_t i = GlobalThread();
  if (i < size) keys[i] = static_cast<Key>(cells(rows[i]));
}

template <typename Key>
absl::Status Order(const CoordinateSet& set, const BoxCells& cells, int32_t* rows,
                   const ExecutionContext& context) {
  const int64_t size = set.size();
  VOXCONV_ASSIGN_OR_RETURN(Array<Key> keys, AllocateArray<Key>(size, context));
  VOXCONV_LAUNCH_EARLY(CellsOfRows<Key>, GridFor(size, kBlock), kBlock, 0, context,
                       set.rows().data(), size, cells, keys.data());
  return SortByKey(keys.data(), /*sorted_keys=*/nullptr, /*values=*/nullptr, rows, size, cells.bits,
                   context);
}

}  // namespace

absl::Status OrderRows(const CoordinateSet& set, int32_t* rows, const ExecutionContext& context) {
  if (set.size() == 0) return absl::OkStatus();
  const BoxCells cells(set.bounds(), set.num_batches());
  return cells.bits <= 32 ? Order<uint32_t>(set, cells, rows, context)
                          : Order<uint64_t>(set, cells, rows, context);
}

}  // namespace voxconv
