// SPDX-License-Identifier: Apache-2.0
// Open addressing by sectors. A 32-byte sector of device memory holds four keys of 64 bits
// (core/coordinate_key.h), which fill it from the front. A search goes on only if all four are
// taken. Each key has a step of its own to the next sector: with one step for all keys, sectors
// that follow each other would fill up together. A search takes O(1) expected.
//
// Only .cu files include this header.
#ifndef VOXCONV_MAPPING_HASH_SECTOR_PROBING_CUH_
#define VOXCONV_MAPPING_HASH_SECTOR_PROBING_CUH_

#include <cstdint>

#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/key_mix.h"

namespace voxconv::sector_probing {

constexpr int kSectorBits = 2;
constexpr int kSector = 1 << kSectorBits;  // keys

// The sectors to search for a key.
struct Probe {
  uint32_t sector, step;
};
struct Probes {
  uint32_t last;    // number of sectors, a power of two, less one
  int shared_bits;  // keys that differ in their low `shared_bits` alone have the same first sector

  __device__ Probe Start(uint64_t key) const {
    const uint64_t hash = MixKey(key >> shared_bits);
    // Odd: it comes to every sector.
    return {static_cast<uint32_t>(hash) & last, static_cast<uint32_t>(hash >> 32) | 1};
  }
  __device__ void Advance(Probe& probe) const { probe.sector = (probe.sector + probe.step) & last; }
};

__device__ inline int64_t SlotOf(const Probe& probe, int i) {
  return static_cast<int64_t>(uint64_t{probe.sector} * kSector + i);
}

// The slot of a key, or -1 if it has none. One way out, so that the lanes of a warp stay together.
// `keys`: two of them a sector. Some slot is empty.
__device__ inline int64_t FindSlot(const Probes& probes, const ulonglong2* keys, uint64_t key) {
  Probe probe = probes.Start(key);
  int slot;
  while (true) {
    const ulonglong2* sector = keys + 2 * uint64_t{probe.sector};
    ulonglong2 pair = __ldg(sector);
    slot = pair.x == key ? 0 : pair.y == key ? 1 : -1;
    if (slot >= 0 || pair.y == kEmptyKey) break;
    pair = __ldg(sector + 1);
    slot = pair.x == key ? 2 : pair.y == key ? 3 : -1;
    if (slot >= 0 || pair.y == kEmptyKey) break;
    probes.Advance(probe);
  }
  return slot < 0 ? -1 : SlotOf(probe, slot);
}

// The first slot of a sector that seems free or has the key, kSector if none does. Slots are never
// freed: what is seen taken stays taken.
__device__ inline int FirstFit(const ulonglong2* sector, uint64_t key) {
  const auto fits = [key](uint64_t seen) { return seen == kEmptyKey || seen == key; };
  const ulonglong2 front = __ldcg(sector), back = __ldcg(sector + 1);
  if (fits(front.x)) return 0;
  if (fits(front.y)) return 1;
  if (fits(back.x)) return 2;
  return fits(back.y) ? 3 : kSector;
}

// The slot of a key, which takes a free one if it has none yet.
__device__ inline int64_t ClaimSlot(const Probes& probes, unsigned long long* keys, uint64_t key) {
  for (Probe probe = probes.Start(key);; probes.Advance(probe)) {
    unsigned long long* const slots = keys + SlotOf(probe, 0);
    for (int i = FirstFit(reinterpret_cast<const ulonglong2*>(slots), key); i < kSector; ++i) {
      const uint64_t seen = atomicCAS(slots + i, kEmptyKey, key);
      if (seen == kEmptyKey || seen == key) return SlotOf(probe, i);
    }
  }
}

}  // namespace voxconv::sector_probing

#endif  // VOXCONV_MAPPING_HASH_SECTOR_PROBING_CUH_
