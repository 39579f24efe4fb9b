// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/sorted_search/sorted_keys_cpu.h"

#include <numeric>
#include <utility>

#include "voxconv/backends/cpu/compact_key.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/backends/cpu/radix_sort.h"

namespace voxconv {
namespace {

constexpr int64_t kRowsPerTask = 16384;

// Sorts compact keys, which take fewer passes than packed ones, and widens them.
absl::Status SortRows(const CoordinateSet& voxels, SortedKeys& sorted,
                      const ExecutionContext& context) {
  const int64_t size = voxels.size();
  const Coordinate* rows = voxels.rows().data();
  const CompactKeyFormat format(voxels.bounds(), voxels.tensor_stride(), voxels.num_batches());
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> compact, AllocateArray<uint64_t>(size, context));
  VOXCONV_ASSIGN_OR_RETURN(sorted.rows, AllocateArray<int32_t>(size, context));
  ParallelRanges(context, size, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) compact.data()[i] = format.Pack(rows[i]);
    std::iota(sorted.rows.data() + begin, sorted.rows.data() + end, static_cast<int32_t>(begin));
  });
  VOXCONV_RETURN_IF_ERROR(RadixSort(compact, sorted.rows, context));
  ParallelRanges(context, size, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      sorted.keys.data()[i] = SearchKey(rows[sorted.rows.data()[i]]);
    }
  });
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SortedKeys> BuildSortedKeys(const CoordinateSet& voxels,
                                           const ExecutionContext& context) {
  SortedKeys sorted;
  const int64_t size = voxels.size();
  VOXCONV_ASSIGN_OR_RETURN(sorted.keys, AllocateArray<uint64_t>(size + 1, context));
  sorted.keys.data()[size] = kEndKey;
  if (!voxels.sorted()) {
    VOXCONV_RETURN_IF_ERROR(SortRows(voxels, sorted, context));
    return sorted;
  }
  const Coordinate* rows = voxels.rows().data();
  ParallelRanges(context, size, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sorted.keys.data()[i] = SearchKey(rows[i]);
  });
  return sorted;
}

}  // namespace voxconv
