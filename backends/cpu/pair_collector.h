// SPDX-License-Identifier: Apache-2.0
// From a mapping's lookups to a kernel map in canonical form.
#ifndef VOXCONV_BACKENDS_CPU_PAIR_COLLECTOR_H_
#define VOXCONV_BACKENDS_CPU_PAIR_COLLECTOR_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/mapping.h"

namespace voxconv {

// Finds the pairs of offset k among the output rows [begin, end). Writes them to `in` and `out`,
// ascending by output row, and returns their number. Both have room for end - begin pairs. Called
// from several threads at once.
using PairProbe =
    absl::FunctionRef<int64_t(int k, int64_t begin, int64_t end, int32_t* in, int32_t* out)>;

// Runs `probe` for all offsets and output rows on the context's threads, and packs the pairs into
// the canonical list. With `symmetric`, which the geometry must be (checked), it probes only
// offsets below the centre: the centre is the identity, and the pairs of offset K-1-k are those of
// k with inputs and outputs exchanged (TorchSparse 4.2.1). Sets the map's identity_offset and
// symmetric. Adds one to Counters::queries for each (offset, row) that is probed. O(K * N_out)
// besides the probes. Takes 8 * K * N_out bytes of temporary memory. kResourceExhausted if the
// memory does not suffice.
absl::StatusOr<KernelMap> CollectPairs(const MapProblem& problem, bool symmetric, PairProbe probe,
                                       const ExecutionContext& context);

// Receives the pairs of one offset among one range of output rows. Has room for one pair for each
// row of the range.
struct PairSlot {
  int32_t* in = nullptr;
  int32_t* out = nullptr;
  int64_t count = 0;
};

// Does what PairProbe does, for all offsets of a group in one pass. slots[i] receives the pairs of
// the group's i-th offset.
using PairGroupProbe =
    absl::FunctionRef<void(int group, int64_t begin, int64_t end, absl::Span<PairSlot> slots)>;

// For probes that go over rows in another order and name positions in that order: the row at each
// position. Empty: positions are rows. Not owned.
struct PositionRows {
  absl::Span<const int32_t> in, out;
};

// How many offsets CollectPairs and CollectPairGroups probe: all, or those below the centre.
int NumProbedOffsets(const ConvGeometry& geometry, bool symmetric);

// CollectPairs for probes that find several offsets together. `groups` lists every probed offset
// (0 .. NumProbedOffsets - 1) once. If `rows` is not empty, probes get and name positions instead
// of rows. The positions must be in the order of the packed keys, so that the pairs of a symmetric
// geometry ascend on both sides. The result has rows in any case. Putting them in order is O(K *
// N_out).
absl::StatusOr<KernelMap> CollectPairGroups(const MapProblem& problem, bool symmetric,
                                            absl::Span<const std::vector<int>> groups,
                                            PairGroupProbe probe, const PositionRows& rows,
                                            const ExecutionContext& context);

// Packs `columns` into the canonical list, for mappings that do not find pairs in the order of
// output rows. columns[k * N_out + q] is the input row of output row q under offset k, or -1. O(K *
// N_out).
absl::StatusOr<KernelMap> CompactColumns(const MapProblem& problem, const Array<int32_t>& columns,
                                         const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_PAIR_COLLECTOR_H_
