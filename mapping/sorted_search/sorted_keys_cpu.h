// SPDX-License-Identifier: Apache-2.0
// Voxels in the order of their keys. This is Minuet's source array. It is also a query segment
// without its offset. Host memory.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_SORTED_KEYS_CPU_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_SORTED_KEYS_CPU_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/mapping/sorted_search/search_key.h"

namespace voxconv {

struct SortedKeys {
  Array<uint64_t> keys;  // [size + 1], ascending; the last is kEndKey
  Array<int32_t> rows;   // [size] row at each position; empty if row i is at position i

  int64_t size() const { return keys.size() - 1; }
  int64_t bytes() const { return keys.bytes() + rows.bytes(); }
  // The row at each position; empty if row i is at position i.
  absl::Span<const int32_t> row_at() const { return rows.host(); }
  int32_t RowAt(int64_t position) const {
    return rows.size() == 0 ? static_cast<int32_t>(position) : rows.data()[position];
  }
};

// Sorts the voxels by key. If the rows are sorted already, it only packs the keys. The result takes
// 8 or 12 bytes for each voxel.
absl::StatusOr<SortedKeys> BuildSortedKeys(const CoordinateSet& voxels,
                                           const ExecutionContext& context);

// LowerBound from `begin` on, for a position that is expected to be near. O(log distance). The keys
// must end with kEndKey, and `key` must be below it.
inline int64_t Gallop(const uint64_t* keys, int64_t begin, int64_t size, uint64_t key) {
  int64_t step = 1;
  int64_t low = begin;
  while (low + step < size && keys[low + step] < key) {
    low += step;
    step *= 2;
  }
  return LowerBound(keys, low, std::min(low + step, size), key);
}

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_SORTED_KEYS_CPU_H_
