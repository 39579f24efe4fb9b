// SPDX-License-Identifier: Apache-2.0
// Which kernel offsets share a launch. The option `fusion` means the same on every backend.
#ifndef VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_SCHEDULE_H_
#define VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace voxconv {

// PCEngine, Section 5 and Figure 6.
enum class FgmsFusion { kSeparate, kBatched, kSegmented };

// One launch of fused gather-matmul-scatter (FGMS).
struct FgmsLaunch {
  std::vector<int32_t> offsets;      // ascending
  std::vector<int64_t> padded_rows;  // [offsets.size()]: rows multiplied, at least the pairs
};

// The launches for a map with this `offset_ptr`, [K + 1]. Offsets without pairs are in no launch.
// - kSeparate has one launch for each offset.
// - kBatched puts offsets of similar size in one launch and pads each to the largest. The sizes in
//   a launch differ by less than a factor of two. The launch of the largest offsets comes first.
// - kSegmented has one launch without padding.
std::vector<FgmsLaunch> ScheduleFgms(FgmsFusion fusion, absl::Span<const int64_t> offset_ptr);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_SCHEDULE_H_
