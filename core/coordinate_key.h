// SPDX-License-Identifier: Apache-2.0
// The packed 64-bit key of a voxel: occupied bit, 9 bits batch, 3 x 18 bits biased x, y, z.
//
// Keys are unsigned. They have the lexicographic order of (batch, x, y, z). key(q + d) equals
// key(q) + KeyDelta(d) if q + d is in range on every axis. Otherwise the fields carry into each
// other, and the sum is the key of another voxel. Code that adds deltas must therefore know that
// the sum is in range (CoordinateSet::StaysInRange), or check it with InRange.
#ifndef VOXCONV_CORE_COORDINATE_KEY_H_
#define VOXCONV_CORE_COORDINATE_KEY_H_

#include <cstdint>

#include "voxconv/core/types.h"

namespace voxconv {

inline constexpr int kKeyBatchBits = 9;
inline constexpr int kKeyAxisBits = 18;
inline constexpr int32_t kMaxBatch = (1 << kKeyBatchBits) - 1;
inline constexpr int32_t kMinCoordinate = -(1 << (kKeyAxisBits - 1));
inline constexpr int32_t kMaxCoordinate = (1 << (kKeyAxisBits - 1)) - 1;
// No voxel has this key: its occupied bit is clear.
inline constexpr uint64_t kEmptyKey = 0;

constexpr bool InRange(int64_t coordinate) {
  return coordinate >= kMinCoordinate && coordinate <= kMaxCoordinate;
}
constexpr bool InRange(const Int3& p) { return InRange(p.x) && InRange(p.y) && InRange(p.z); }

// Requires 0 <= b <= kMaxBatch and InRange(position).
constexpr uint64_t PackKey(const Coordinate& c) {
  return uint64_t{1} << 63 | static_cast<uint64_t>(c.b) << (3 * kKeyAxisBits) |
         static_cast<uint64_t>(c.x - kMinCoordinate) << (2 * kKeyAxisBits) |
         static_cast<uint64_t>(c.y - kMinCoordinate) << kKeyAxisBits |
         static_cast<uint64_t>(c.z - kMinCoordinate);
}

// The inverse of PackKey.
constexpr Coordinate UnpackKey(uint64_t key) {
  constexpr uint64_t kAxisMask = (uint64_t{1} << kKeyAxisBits) - 1;
  return {static_cast<int32_t>(key >> (3 * kKeyAxisBits) & kMaxBatch),
          static_cast<int32_t>(key >> (2 * kKeyAxisBits) & kAxisMask) + kMinCoordinate,
          static_cast<int32_t>(key >> kKeyAxisBits & kAxisMask) + kMinCoordinate,
          static_cast<int32_t>(key & kAxisMask) + kMinCoordinate};
}

// What the step `d` adds to a key, modulo 2^64.
constexpr uint64_t KeyDelta(const Int3& d) {
  return static_cast<uint64_t>(static_cast<int64_t>(d.x)) * (uint64_t{1} << (2 * kKeyAxisBits)) +
         static_cast<uint64_t>(static_cast<int64_t>(d.y)) * (uint64_t{1} << kKeyAxisBits) +
         static_cast<uint64_t>(static_cast<int64_t>(d.z));
}

}  // namespace voxconv

#endif  // VOXCONV_CORE_COORDINATE_KEY_H_
