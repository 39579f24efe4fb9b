// Searches of one query segment at a time (Minuet 5.1): the queries q + d of one kernel offset.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_SEGMENT_SEARCH_CPU_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_SEGMENT_SEARCH_CPU_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/mapping.h"
#include "mapping/sorted_search/sorted_keys_cpu.h"

namespace voxconv {

// What every search is given. References only.
struct SortedSearch {
  const MapProblem& problem;
  const SortedKeys& source;  // the inputs
  bool symmetric;            // probe only the offsets below the centre
};

// Binary search of the whole source for queries in the given row order: the baseline.
absl::StatusOr<KernelMap> NaiveSearch(const SortedSearch& search, const ExecutionContext& context);

// Binary search of the whole source for every query of the sorted segment, which is never
// materialised: consecutive queries take nearly the same path through the source (SS).
absl::StatusOr<KernelMap> SegmentedSearch(const SortedSearch& search, const SortedKeys& outputs,
                                          const ExecutionContext& context);

// The segment is cut by a backward search of the last key of every block of `source_block` source
// keys in it; queries are then searched in their source block alone, at most `query_block` of them
// at a time and in lockstep, as a CUDA thread block would (SS + DTBS).
absl::StatusOr<KernelMap> DoubleTraversedSearch(const SortedSearch& search,
                                                const SortedKeys& outputs, int64_t source_block,
                                                int64_t query_block,
                                                const ExecutionContext& context);
inline constexpr int64_t kMaxQueryBlock = 4096;

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_SEGMENT_SEARCH_CPU_H_
