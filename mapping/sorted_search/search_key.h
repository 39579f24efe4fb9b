// SPDX-License-Identifier: Apache-2.0
// The keys that are searched, on the CPU and on CUDA alike.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_SEARCH_KEY_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_SEARCH_KEY_H_

#include <cstdint>

#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/types.h"

namespace voxconv {

// A search key is the packed key less a constant. SearchKey(q) + KeyDelta(d) then never wraps
// modulo 2^64, even if q + d leaves the coordinate range (|KeyDelta| < 2^55). The sums thus ascend
// with q for any d. A sum may equal the key of a voxel p. Then p = q + d if and only if q + d is in
// range.
inline constexpr uint64_t kSearchKeyBias = uint64_t{1} << 62;
constexpr uint64_t SearchKey(const Coordinate& c) { return PackKey(c) - kSearchKeyBias; }
constexpr Coordinate VoxelOf(uint64_t search_key) { return UnpackKey(search_key + kSearchKeyBias); }
// This key is above every search key and every sum.
inline constexpr uint64_t kEndKey = UINT64_MAX;

// Whether the found voxel p = VoxelOf(source_key) is q + offset. SearchKey says why it may not be.
constexpr bool IsNeighbour(uint64_t source_key, uint64_t query_key, const Int3& offset) {
  const Coordinate p = VoxelOf(source_key);
  const Coordinate q = VoxelOf(query_key);
  return p.b == q.b && p.x == q.x + offset.x && p.y == q.y + offset.y && p.z == q.z + offset.z;
}

// The first position in [begin, end) whose key is not below `key`, or `end`. The number of steps
// depends on end - begin only, and no step branches.
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
