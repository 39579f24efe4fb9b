// Voxels in the order of their keys: Minuet's source array, and a query segment less its offset.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_SORTED_KEYS_CPU_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_SORTED_KEYS_CPU_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/backend.h"
#include "core/coordinate_key.h"
#include "core/coordinate_set.h"

namespace voxconv {

// What is searched for: the packed key less a constant, so that SearchKey(q) + KeyDelta(d) never
// wraps modulo 2^64, even where q + d leaves the coordinate range (|KeyDelta| < 2^55). Sums thus
// ascend with q for any d, and a sum that equals the key of a voxel p means p = q + d iff q + d is
// in range.
constexpr uint64_t SearchKey(const Coordinate& c) { return PackKey(c) - (uint64_t{1} << 62); }
constexpr Coordinate VoxelOf(uint64_t search_key) {
  return UnpackKey(search_key + (uint64_t{1} << 62));
}
// Above every search key and every sum.
inline constexpr uint64_t kEndKey = UINT64_MAX;

struct SortedKeys {
  Array<uint64_t> keys;  // [size + 1], ascending; the last is kEndKey
  Array<int32_t> rows;   // [size] row of every position; empty where positions are rows

  int64_t size() const { return keys.size() - 1; }
  int64_t bytes() const { return keys.bytes() + rows.bytes(); }
  // The row at every position, or empty where positions are rows.
  absl::Span<const int32_t> row_at() const { return rows.host(); }
  int32_t RowAt(int64_t position) const {
    return rows.size() == 0 ? static_cast<int32_t>(position) : rows.data()[position];
  }
};

// Sorts by key, or only packs where the rows are sorted already. 8 or 12 bytes a voxel.
absl::StatusOr<SortedKeys> BuildSortedKeys(const CoordinateSet& voxels,
                                           const ExecutionContext& context);

// First position in [begin, end) whose key is not below `key`; `end` if none. The number of steps
// depends on end - begin alone and no step branches.
inline int64_t LowerBound(const uint64_t* keys, int64_t begin, int64_t end, uint64_t key) {
  if (begin == end) return end;
  int64_t length = end - begin;
  while (length > 1) {
    const int64_t half = length / 2;
    begin += keys[begin + half - 1] < key ? half : 0;
    length -= half;
  }
  return begin + (keys[begin] < key);
}

// The same from `begin` on, where the position is expected close by: O(log distance). The keys
// must end with kEndKey and `key` be less.
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
