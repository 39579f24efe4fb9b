// SPDX-License-Identifier: Apache-2.0
// The lookup of a voxel in the tables of a super-PSH, on any backend.
#ifndef VOXCONV_MAPPING_PERFECT_HASH_PSH_VIEW_H_
#define VOXCONV_MAPPING_PERFECT_HASH_PSH_VIEW_H_

#include <cstdint>

#include "voxconv/core/types.h"

namespace voxconv {

// An entry of the offset table has three coordinates below kMaxMBar in one word.
inline constexpr int kPhiBits = 10;
inline constexpr int32_t kMaxMBar = 1 << kPhiBits;
constexpr uint32_t PackPhi(uint32_t x, uint32_t y, uint32_t z) {
  return x << (2 * kPhiBits) | y << kPhiBits | z;
}

// Remainders by a fixed divisor without a division (Lemire, Kaser and Kurz, 2019).
class FastMod {
 public:
  constexpr FastMod() = default;
  constexpr explicit FastMod(uint32_t divisor)
      : divisor_(divisor), inverse_(UINT64_MAX / divisor + 1) {}
  constexpr uint32_t operator()(uint32_t value) const {
    const uint64_t fraction = inverse_ * value;
    return static_cast<uint32_t>(static_cast<unsigned __int128>(fraction) * divisor_ >> 64);
  }

 private:
  uint32_t divisor_ = 1;
  uint64_t inverse_ = 0;
};

// What a lookup in one sample needs beside the tables.
struct PshSample {
  Int3 lo;                       // in finest voxels
  uint32_t span[3] = {0, 0, 0};  // hi - lo
  uint32_t m_bar = 0, r_bar = 0;
  FastMod mod_m, mod_r;
  int64_t first_slot = 0, first_phi = 0;

  // p is a voxel in units of the tensor stride, relative to `lo`.
  constexpr int64_t PhiIndex(const uint32_t p[3]) const {
    const uint64_t r = r_bar;
    return first_phi + static_cast<int64_t>((mod_r(p[0]) * r + mod_r(p[1])) * r + mod_r(p[2]));
  }
  // (h0 + phi) mod m_bar, where h0 = (x, y, z) is below m_bar on every axis.
  constexpr int64_t SlotOf(uint32_t x, uint32_t y, uint32_t z, uint32_t phi) const {
    const uint64_t m = m_bar;
    const uint64_t xy =
        Wrap(x + (phi >> (2 * kPhiBits))) * m + Wrap(y + (phi >> kPhiBits) % kMaxMBar);
    return first_slot + static_cast<int64_t>(xy * m + Wrap(z + phi % kMaxMBar));
  }
  constexpr uint32_t Wrap(uint32_t sum) const { return sum >= m_bar ? sum - m_bar : sum; }
};

// The tables of a SuperPsh or a PshCuda, which own the memory. `Tag` is uint16_t or uint32_t.
template <typename Tag>
struct PshView {
  const PshSample* samples;
  int32_t num_samples;
  Int3 stride;
  const uint32_t* phi;
  const Tag* tags;  // T, [slots, 3]
  const int32_t* h;

  // The row of the voxel at (batch, x, y, z), or -1 if there is none. There is none if H = -1 or
  // T != p. There is none outside the sample's box or between lattice points either. Any values are
  // allowed. O(1).
  constexpr int32_t Find(const Coordinate& c) const {
    if (c.b < 0 || c.b >= num_samples) return -1;
    const PshSample& sample = samples[c.b];
    if (sample.m_bar == 0) return -1;
    const int32_t position[3] = {c.x, c.y, c.z};
    const int32_t lo[3] = {sample.lo.x, sample.lo.y, sample.lo.z};
    const uint32_t step[3] = {static_cast<uint32_t>(stride.x), static_cast<uint32_t>(stride.y),
                              static_cast<uint32_t>(stride.z)};
    uint32_t p[3] = {0, 0, 0};
    for (int axis = 0; axis < 3; ++axis) {
      // As unsigned numbers, values below the corner are far above it.
      p[axis] = static_cast<uint32_t>(position[axis]) - static_cast<uint32_t>(lo[axis]);
      if (p[axis] > sample.span[axis]) return -1;
      if (step[axis] == 1) continue;
      if (p[axis] % step[axis] != 0) return -1;
      p[axis] /= step[axis];
    }
    const FastMod& mod_m = sample.mod_m;
    const int64_t slot =
        sample.SlotOf(mod_m(p[0]), mod_m(p[1]), mod_m(p[2]), phi[sample.PhiIndex(p)]);
    const Tag* tag = tags + 3 * slot;
#ifdef __CUDA_ARCH__
    // Nine of ten lookups find nothing, and most of these end at the first of three loads. Each
    // load of 32 lanes that read anywhere costs the cache as much as 32 loads.
    const bool same = tag[0] == p[0] && tag[1] == p[1] && tag[2] == p[2];
#else
    const bool same = (tag[0] == p[0]) & (tag[1] == p[1]) & (tag[2] == p[2]);
#endif
    return same ? h[slot] : -1;
  }
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_PERFECT_HASH_PSH_VIEW_H_
