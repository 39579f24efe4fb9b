// SPDX-License-Identifier: Apache-2.0
// Construction of the perfect spatial hash of one sample.
#ifndef VOXCONV_MAPPING_PERFECT_HASH_PSH_BUILDER_CPU_H_
#define VOXCONV_MAPPING_PERFECT_HASH_PSH_BUILDER_CPU_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/mapping/perfect_hash/psh_view.h"

namespace voxconv {

// A voxel in units of the tensor stride, relative to its sample's lower corner.
using PshVoxel = std::array<uint32_t, 3>;

struct PshOptions {
  double load = 1;  // the aim for n / m; m_bar is the least with m_bar^3 * load >= n
  int64_t max_retries = 24;
};

// The table sizes to try, one after the other. Each try has a larger r_bar. The last tries also
// have a larger m_bar.
class PshSizes {
 public:
  // Lefebvre and Hoppe's first size of the offset table: r = n / (2 d).
  static constexpr double kFirstBucketSize = 6;

  // For n >= 1 voxels. The first offset table has n / bucket_size entries.
  PshSizes(int64_t n, const PshOptions& options, double bucket_size = kFirstBucketSize);

  // Goes to the next sizes. The first call goes to the first sizes. After the last sizes, it
  // returns kResourceExhausted with n, m_bar, r_bar and the number of tries.
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
  std::vector<uint32_t> slot;  // [n]: each voxel's slot in [0, m_bar^3), x slowest
};

// The greedy construction of Lefebvre and Hoppe (Perfect Spatial Hashing, 2006). Voxels of equal h1
// form a bucket. Buckets are placed in descending size. Each takes the first offset that moves all
// its voxels to free slots. If a bucket has no such offset, the construction starts again with the
// next of PshSizes. `voxels` must be unique. The result is deterministic. More than kMaxMBar^3
// voxels are an error. If all tries fail, the error is that of PshSizes::Next.
absl::StatusOr<PshHash> BuildPshHash(absl::Span<const PshVoxel> voxels, const PshOptions& options);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_PERFECT_HASH_PSH_BUILDER_CPU_H_
