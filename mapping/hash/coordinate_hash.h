// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_MAPPING_HASH_COORDINATE_HASH_H_
#define VOXCONV_MAPPING_HASH_COORDINATE_HASH_H_

#include <cstdint>

#include "voxconv/core/types.h"

namespace voxconv {

// MurmurHash3 (x86, 32 bits, seed 0) of a coordinate's four words. MinkowskiEngine 0.5.4 hashes
// coordinates by it (src/coordinate.hpp, coordinate_murmur3).
constexpr uint32_t Murmur3(const Coordinate& c) {
  uint32_t hash = 0;
  for (const int32_t value : {c.b, c.x, c.y, c.z}) {
    uint32_t word = static_cast<uint32_t>(value) * 0xcc9e2d51u;
    word = word << 15 | word >> 17;
    hash ^= word * 0x1b873593u;
    hash = hash << 13 | hash >> 19;
    hash = hash * 5 + 0xe6546b64u;
  }
  hash ^= 16;  // bytes
  hash = (hash ^ hash >> 16) * 0x85ebca6bu;
  hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
  return hash ^ hash >> 16;
}

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_HASH_COORDINATE_HASH_H_
