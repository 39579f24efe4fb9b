// SPDX-License-Identifier: Apache-2.0
// A hash table of packed keys for device code: open addressing, one slot after the other. Only .cu
// files include this header.
#ifndef VOXCONV_BACKENDS_CUDA_VOXEL_TABLE_CUH_
#define VOXCONV_BACKENDS_CUDA_VOXEL_TABLE_CUH_

#include <algorithm>
#include <bit>
#include <cstdint>

#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/key_mix.h"

namespace voxconv {

// Slots of a table for `keys` keys, of at most 2^30: a power of two, so that at most half of them
// are taken.
inline int64_t SlotsFor(int64_t keys) {
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(2 * keys, 32))));
}

// Views the keys, which are all kEmptyKey at first. Slots are never freed. The slot of a key
// depends on which thread comes first.
struct VoxelTable {
  unsigned long long* keys;
  uint32_t last;  // number of slots less one

  // The key's slot, which may be taken now.
  __device__ uint32_t Insert(uint64_t key) const {
    for (uint32_t slot = Home(key);; slot = (slot + 1) & last) {
      unsigned long long seen = __ldcg(keys + slot);
      if (seen == kEmptyKey) seen = atomicCAS(keys + slot, kEmptyKey, key);
      if (seen == kEmptyKey || seen == key) return slot;
    }
  }

  // The key's slot, or -1. No thread may insert at the same time.
  __device__ int64_t Find(uint64_t key) const {
    for (uint32_t slot = Home(key);; slot = (slot + 1) & last) {
      const unsigned long long seen = keys[slot];
      if (seen == key) return slot;
      if (seen == kEmptyKey) return -1;
    }
  }

 private:
  __device__ uint32_t Home(uint64_t key) const { return static_cast<uint32_t>(MixKey(key)) & last; }
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_VOXEL_TABLE_CUH_
