// One walk for all kernel offsets that differ in z alone.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_Z_WALK_CPU_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_Z_WALK_CPU_H_

#include "absl/status/statusor.h"
#include "core/mapping.h"
#include "mapping/sorted_search/segment_search_cpu.h"
#include "mapping/sorted_search/sorted_keys_cpu.h"

namespace voxconv {

// Keys ascend with z fastest, so the voxels q + d for all offsets d of one (x, y) lie next to each
// other in the source: the sorted segment of the lowest offset is merged with the source, and the
// others are found by a few steps from there, for those queries that have anything in reach. K = 27
// takes 9 merges (5 with `symmetric`), and binary searches only where a piece of a merge starts.
// O(columns x (N_in + N_out) + pairs); where the source is much denser than the queries, the merge
// gallops.
absl::StatusOr<KernelMap> ZWalkSearch(const SortedSearch& search, const SortedKeys& outputs,
                                      const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_Z_WALK_CPU_H_
