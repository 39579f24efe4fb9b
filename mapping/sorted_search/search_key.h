// The keys that are searched, on the CPU and on CUDA alike.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_SEARCH_KEY_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_SEARCH_KEY_H_

#include <cstdint>

#include "core/coordinate_key.h"
#include "core/types.h"

namespace voxconv {

// What is searched for: the packed key less a constant, so that SearchKey(q) + KeyDelta(d) never
// wraps modulo 2^64, even where q + d leaves the coordinate range (|KeyDelta| < 2^55). Sums thus
// ascend with q for any d, and a sum that equals the key of a voxel p means p = q + d iff q + d is
// in range.
inline constexpr uint64_t kSearchKeyBias = uint64_t{1} << 62;
constexpr uint64_t SearchKey(const Coordinate& c) { return PackKey(c) - kSearchKeyBias; }
constexpr Coordinate VoxelOf(uint64_t search_key) { return UnpackKey(search_key + kSearchKeyBias); }
// Above every search key and every sum.
inline constexpr uint64_t kEndKey = UINT64_MAX;

// Whether a found voxel p = VoxelOf(source key) is q + offset: see SearchKey.
constexpr bool IsNeighbour(uint64_t source_key, uint64_t query_key, const Int3& offset) {
  const Coordinate p = VoxelOf(source_key);
  const Coordinate q = VoxelOf(query_key);
  return p.b == q.b && p.x == q.x + offset.x && p.y == q.y + offset.y && p.z == q.z + offset.z;
}

// First position in [begin, end) whose key is not below `key`; `end` if none. The number of steps
// depends on end - begin alone and no step branches.
constexpr int64_t LowerBound(const uint64_t* keys, int64_t begin, int64_t end, uint64_t key) {
  if (begin == end) return end;
  int64_t length = end - begin;
  while (length > 1) {
    const int64_t half = length / 2;
    begin += keys[begin + half - 1] < key ? half : 0;
    length -= half;
  }
  return begin + (keys[begin] < key);
}

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_SEARCH_KEY_H_
