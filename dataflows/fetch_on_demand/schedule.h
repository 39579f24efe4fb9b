// Which kernel offsets share a launch: what `fusion` means, whatever the backend.
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
  std::vector<int64_t> padded_rows;  // of each offset: rows multiplied, at least its pairs
};

// Separate: a launch an offset. Batched: offsets of similar size in one launch, every one padded to
// the largest; sizes of a launch differ by less than a factor of two, largest first. Segmented: one
// launch, nothing padded. Offsets without pairs are in no launch.
std::vector<FgmsLaunch> ScheduleFgms(FgmsFusion fusion, absl::Span<const int64_t> offset_ptr);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_SCHEDULE_H_
