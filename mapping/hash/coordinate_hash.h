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

// FNV-1a of a coordinate's four words, the batch index last, folded to 60 bits. TorchSparse 1.4 and
// 2.0 hash coordinates by it (torchsparse/backend/hash/hash_cuda.cu).
constexpr uint64_t Fnv1a60(const Coordinate& c) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const int32_t value : {c.x, c.y, c.z, c.b}) {
    hash = (hash ^ static_cast<uint32_t>(value)) * 0x100000001b3u;
  }
  return hash >> 60 ^ (hash & 0xfffffffffffffffu);
}

// The sum of a coordinate's words times primes, plus one. PCEngine's release hashes by it
// (backend/hash.cuh), and probes a step apart.
constexpr uint64_t PrimeSum(const Coordinate& c) {
  const auto word = [](int32_t value) { return static_cast<uint64_t>(int64_t{value}); };
  return word(c.b) * 23783141 + word(c.x) * 73856093 + word(c.y) * 19349669 + word(c.z) * 83492791 +
         1;
}
inline constexpr uint64_t kProbeStep = 97;
// Its slots: twice the power of two that is not below the keys.
constexpr int64_t PcengineSlots(int64_t keys) {
  int64_t slots = 2;
  while (slots < 2 * keys) slots *= 2;
  return slots;
}

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_HASH_COORDINATE_HASH_H_
