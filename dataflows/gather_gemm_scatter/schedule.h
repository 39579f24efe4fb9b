// The order of work and the place of every pair in the buffers; the same on every backend.
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_SCHEDULE_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dataflows/gather_gemm_scatter/grouping.h"

namespace voxconv {

// Pairs [begin, end) of the canonical list, at rows [base, base + end - begin) of the buffers.
struct PairWindow {
  int64_t begin = 0, end = 0;
  int64_t base = 0;

  bool Contains(int64_t position) const { return position >= begin && position < end; }
  int64_t RowOf(int64_t position) const { return base + position - begin; }
};

// One matmul of offsets.size() matrices with padded_rows rows each, one after the other from
// row `base` of the buffers. More than one matrix: a batched matmul.
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

// What fits in the buffers at once: all its gathers run before and all its scatters after its
// matmuls (TorchSparse 4.3.2, fused data movement).
struct BufferPass {
  std::vector<Matmul> matmuls;
  std::vector<PairWindow> windows;  // [K]: an offset's pairs in this pass; empty: none
  std::vector<int> offsets;         // with a window that is not empty, ascending
  std::vector<PaddingRun> padding;
  int64_t rows = 0;   // of both buffers
  int64_t pairs = 0;  // of them true pairs
};

struct Schedule {
  int identity_offset = -1;  // multiplied straight from the features; in no pass
  std::vector<BufferPass> passes;
  int64_t buffer_rows = 0;  // of the largest pass
};

// Lays the groups out in passes of at most `max_rows` buffer rows. A matmul that is larger alone
// is cut into slices of its rows, padding included, so that the rows multiplied do not depend on
// `max_rows`. `offset_ptr` is the map's. kResourceExhausted, with the rows needed, where one row
// of each matrix of a batch does not fit.
absl::StatusOr<Schedule> MakeSchedule(absl::Span<const int64_t> offset_ptr, int identity_offset,
                                      absl::Span<const OffsetGroup> groups, int64_t max_rows);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_SCHEDULE_H_
