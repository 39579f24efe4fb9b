// SPDX-License-Identifier: Apache-2.0
// Searches of one query segment at a time (Minuet 5.1). A segment has the queries q + d of one
// kernel offset d.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_SEGMENT_SEARCH_CPU_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_SEGMENT_SEARCH_CPU_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "voxconv/core/mapping.h"
#include "voxconv/mapping/sorted_search/sorted_keys_cpu.h"

namespace voxconv {

// The arguments of every search. It owns nothing.
struct SortedSearch {
  const MapProblem& problem;
  const SortedKeys& source;  // the inputs
  bool symmetric;            // probe only the offsets below the centre
};

// The baseline: a binary search of the whole source for each query, in the order of the rows.
absl::StatusOr<KernelMap> NaiveSearch(const SortedSearch& search, const ExecutionContext& context);

// Minuet's SS: a binary search of the whole source for each query, in sorted order. Consecutive
// queries take nearly the same path through the source. The segment is never materialised.
absl::StatusOr<KernelMap> SegmentedSearch(const SortedSearch& search, const SortedKeys& outputs,
                                          const ExecutionContext& context);

// Minuet's SS + DTBS. The source is cut into blocks of `source_block` keys. A backward search finds
// the last key of each block in the segment, which cuts the segment. Each query is then searched in
// its source block only. At most `query_block` queries are searched at a time, in lockstep, as in a
// CUDA thread block.
absl::StatusOr<KernelMap> DoubleTraversedSearch(const SortedSearch& search,
                                                const SortedKeys& outputs, int64_t source_block,
                                                int64_t query_block,
                                                const ExecutionContext& context);
inline constexpr int64_t kMaxQueryBlock = 4096;

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_SEGMENT_SEARCH_CPU_H_
