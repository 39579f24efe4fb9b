// SPDX-License-Identifier: Apache-2.0
// The order of work and the place of every pair in the buffers. Every backend uses the same
// schedule.
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_SCHEDULE_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/dataflows/gather_gemm_scatter/grouping.h"

namespace voxconv {

// The pairs [begin, end) of the canonical list. They lie at the rows [base, base + end - begin) of
// the buffers.
struct PairWindow {
  int64_t begin = 0, end = 0;
  int64_t base = 0;

  bool Contains(int64_t position) const { return position >= begin && position < end; }
  int64_t RowOf(int64_t position) const { return base + position - begin; }
};

// One matmul of offsets.size() matrices with padded_rows rows each. The matrices lie one after the
// other in the buffers, from row `base` on. A matmul of several matrices is batched.
struct Matmul {
  std::vector<int> offsets;
  int64_t base = 0;
  int64_t padded_rows = 0;

  int64_t rows() const { return padded_rows * static_cast<int64_t>(offsets.size()); }
};

// Rows of the gather buffer that hold no pair and are multiplied as zeros.
struct PaddingRun {
  int64_t base = 0, rows = 0;
};

// Matmuls whose rows fit in the buffers together. All gathers of a pass run before its matmuls, and
// all scatters run after them (TorchSparse 4.3.2, fused data movement).
struct BufferPass {
  std::vector<Matmul> matmuls;
  std::vector<PairWindow> windows;  // [K]: each offset's pairs in this pass; may be empty
  std::vector<int> offsets;         // offsets whose window is not empty, ascending
  std::vector<PaddingRun> padding;
  int64_t rows = 0;   // rows in use, the same in both buffers
  int64_t pairs = 0;  // rows that hold a pair; the others are padding
};

struct Schedule {
  // This offset is multiplied straight from the features and is in no pass. -1 = none.
  int identity_offset = -1;
  std::vector<BufferPass> passes;
  int64_t buffer_rows = 0;  // rows of the largest pass
};

// Divides the groups among passes of at most `max_rows` buffer rows. A matmul of more rows is cut
// into slices of its rows, padding included. The rows multiplied thus do not depend on `max_rows`.
// `offset_ptr` is the map's. kResourceExhausted if one row of each matrix of a batch does not fit.
// The message gives the rows needed.
absl::StatusOr<Schedule> MakeSchedule(absl::Span<const int64_t> offset_ptr, int identity_offset,
                                      absl::Span<const OffsetGroup> groups, int64_t max_rows);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_SCHEDULE_H_
