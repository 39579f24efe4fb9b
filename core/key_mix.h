// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_CORE_KEY_MIX_H_
#define VOXCONV_CORE_KEY_MIX_H_

#include <cstdint>

namespace voxconv {

// Spreads a packed key over 64 bits. The first multiplication carries every field into the high
// bits, and the shift brings them down again. Keys of neighbouring voxels differ in few low bits of
// each field. One multiplication would leave such keys on a lattice, so there is a second one. The
// function is one-to-one.
constexpr uint64_t MixKey(uint64_t key) {
  key *= 0x9E3779B97F4A7C15u;
  key ^= key >> 32;
  key *= 0xD6E8FEB86659FD93u;
  return key ^ key >> 32;
}

}  // namespace voxconv

#endif  // VOXCONV_CORE_KEY_MIX_H_
