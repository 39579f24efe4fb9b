// Construction of the perfect spatial hash of one sample.
#ifndef VOXCONV_MAPPING_PERFECT_HASH_PSH_BUILDER_CPU_H_
#define VOXCONV_MAPPING_PERFECT_HASH_PSH_BUILDER_CPU_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace voxconv {

// A voxel in units of the tensor stride, relative to its sample's lower corner.
using PshVoxel = std::array<uint32_t, 3>;

// An entry of the offset table, three coordinates below kMaxMBar in one word.
inline constexpr int kPhiBits = 10;
inline constexpr int32_t kMaxMBar = 1 << kPhiBits;
constexpr uint32_t PackPhi(uint32_t x, uint32_t y, uint32_t z) {
  return x << (2 * kPhiBits) | y << kPhiBits | z;
}

struct PshOptions {
  double load = 1;  // n / m to aim at: m_bar is the least with m_bar^3 * load >= n
  int64_t max_retries = 24;
};

struct PshHash {
  int32_t m_bar = 0, r_bar = 0;  // 0 without voxels
  int tries = 0;
  std::vector<uint32_t> phi;   // [r_bar^3], x slowest
  std::vector<uint32_t> slot;  // [n]: the voxel's slot in [0, m_bar^3), x slowest
};

// The greedy construction of Lefebvre and Hoppe (Perfect Spatial Hashing, 2006): voxels of equal
// h1 form a bucket; buckets are placed in descending size, each with the first offset under which
// its voxels meet free slots only. Where a bucket has none, all is tried again with a larger r_bar,
// at last also with a larger m_bar. `voxels` must be unique. Deterministic. Refuses more than
// kMaxMBar^3 voxels; kResourceExhausted, with n, m_bar, r_bar and the tries, if all of them fail.
absl::StatusOr<PshHash> BuildPshHash(absl::Span<const PshVoxel> voxels, const PshOptions& options);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_PERFECT_HASH_PSH_BUILDER_CPU_H_
