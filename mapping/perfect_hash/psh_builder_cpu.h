// Construction of the perfect spatial hash of one sample.
#ifndef VOXCONV_MAPPING_PERFECT_HASH_PSH_BUILDER_CPU_H_
#define VOXCONV_MAPPING_PERFECT_HASH_PSH_BUILDER_CPU_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "mapping/perfect_hash/psh_view.h"

namespace voxconv {

// A voxel in units of the tensor stride, relative to its sample's lower corner.
using PshVoxel = std::array<uint32_t, 3>;

struct PshOptions {
  double load = 1;  // n / m to aim at: m_bar is the least with m_bar^3 * load >= n
  int64_t max_retries = 24;
};

// The table sizes to try one after the other: a larger r_bar each time, at last also a larger
// m_bar.
class PshSizes {
 public:
  // For n >= 1 voxels.
  PshSizes(int64_t n, const PshOptions& options);

  // Goes to the next sizes, at the first call to the first. kResourceExhausted, with n, m_bar,
  // r_bar and the tries, after the last.
  absl::Status Next();

  int32_t m_bar() const { return m_bar_; }
  int32_t r_bar() const { return r_bar_; }
  int tries() const { return tries_; }

 private:
  int64_t n_;
  int64_t max_retries_;
  int32_t m_bar_;
  int32_t r_bar_ = 0;
  double r_target_;
  int tries_ = 0;
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
