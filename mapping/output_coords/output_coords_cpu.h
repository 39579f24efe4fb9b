// SPDX-License-Identifier: Apache-2.0
// The CPU algorithms of the output coordinate plugins.
#ifndef VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_CPU_H_
#define VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_CPU_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "voxconv/core/mapping.h"
#include "voxconv/mapping/output_coords/candidate_rule.h"

namespace voxconv {

// The number of input rows of one task. Each task counts its outputs before they are written.
inline constexpr int64_t kRowsPerTask = 8192;

// The functions below return the keys (CandidateRule::key_format) of all outputs, in any order and
// with repetitions.

// Enumerates only outputs, axis by axis. It counts them first and then writes them.
absl::StatusOr<Array<uint64_t>> SortUniqueKeysCpu(const CandidateRule& rule,
                                                  const CoordinateSet& inputs,
                                                  const ExecutionContext& context);
// TorchSparse Algorithm 3 in passes over memory: candidates, modular check, boundary check,
// compaction.
absl::StatusOr<Array<uint64_t>> StagedKeysCpu(const CandidateRule& rule,
                                              const CoordinateSet& inputs,
                                              const ExecutionContext& context);
// The same four steps in one pass. A candidate stays in registers until it is known to be an
// output.
absl::StatusOr<Array<uint64_t>> FusedKeysCpu(const CandidateRule& rule, const CoordinateSet& inputs,
                                             const ExecutionContext& context);
// Luo and Lai's table and atomic counter. Its keys have no repetitions, and their order differs
// from run to run. `max_bytes`: the largest array over all cells, without the pages that no output
// lies in. Beyond it there is a hash table.
absl::StatusOr<Array<uint64_t>> LocationTableKeysCpu(const CandidateRule& rule,
                                                     const CoordinateSet& inputs, int64_t max_bytes,
                                                     const ExecutionContext& context);

// The rows of `keys`, sorted and without repetitions. O(N log N) at worst.
absl::StatusOr<CoordinateSetPtr> UniqueRowsCpu(const CandidateRule& rule, Array<uint64_t> keys,
                                               const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_CPU_H_
