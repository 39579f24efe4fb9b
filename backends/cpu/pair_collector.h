// From a mapping's lookups to a kernel map in canonical form.
#ifndef VOXCONV_BACKENDS_CPU_PAIR_COLLECTOR_H_
#define VOXCONV_BACKENDS_CPU_PAIR_COLLECTOR_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/kernel_map.h"
#include "core/mapping.h"

namespace voxconv {

// Finds the pairs of offset k among output rows [begin, end): writes them to in[0..] and out[0..],
// ascending by output row, and returns their number. There is room for end - begin pairs. Called
// concurrently.
using PairProbe =
    absl::FunctionRef<int64_t(int k, int64_t begin, int64_t end, int32_t* in, int32_t* out)>;

// Runs `probe` for all offsets and output rows in parallel and packs the pairs into the canonical
// list. With `symmetric` (the geometry must be, checked) only offsets below the centre are probed:
// the centre is the identity and offset K-1-k the transpose of k (TorchSparse 4.2.1). Records
// counters.queries, one for each (offset, row) probed, and counters.true_pairs is left to the
// dataflow. O(K N_out) work beside the probes', 8 bytes x K x N_out of scratch.
absl::StatusOr<KernelMap> CollectPairs(const MapProblem& problem, bool symmetric, PairProbe probe,
                                       const ExecutionContext& context);

// Where the pairs of one offset among one range of output rows go: room for as many as the range
// has rows.
struct PairSlot {
  int32_t* in = nullptr;
  int32_t* out = nullptr;
  int64_t count = 0;
};

// As PairProbe, for all offsets of a group in one pass: slots[i] is that of the group's i-th.
using PairGroupProbe =
    absl::FunctionRef<void(int group, int64_t begin, int64_t end, absl::Span<PairSlot> slots)>;

// For probes that walk both sides in another order than that of their rows and name positions in
// it: the row at every position. Empty: positions are rows. Not owned.
struct PositionRows {
  absl::Span<const int32_t> in, out;
};

// How many offsets CollectPairs and CollectPairGroups probe: all, or those below the centre.
int NumProbedOffsets(const ConvGeometry& geometry, bool symmetric);

// CollectPairs where several offsets are found together. `groups` lists every probed offset
// (0 .. NumProbedOffsets - 1) once. With `rows`, probes are given and name positions instead of
// rows, in an order under which a symmetric geometry's pairs ascend on both sides (that of the
// packed keys); the result is in rows all the same, at O(K N_out) for putting them in order.
absl::StatusOr<KernelMap> CollectPairGroups(const MapProblem& problem, bool symmetric,
                                            absl::Span<const std::vector<int>> groups,
                                            PairGroupProbe probe, const PositionRows& rows,
                                            const ExecutionContext& context);

// The canonical list of `columns` [K, N_out] (offset-major): input row or -1. For mappings that
// find pairs in another order than by output row.
absl::StatusOr<KernelMap> CompactColumns(const MapProblem& problem, const Array<int32_t>& columns,
                                         const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_PAIR_COLLECTOR_H_
