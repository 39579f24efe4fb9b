// SPDX-License-Identifier: Apache-2.0
// One walk for all kernel offsets that differ only in z.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_Z_WALK_CPU_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_Z_WALK_CPU_H_

#include "absl/status/statusor.h"
#include "voxconv/core/mapping.h"
#include "voxconv/mapping/sorted_search/segment_search_cpu.h"
#include "voxconv/mapping/sorted_search/sorted_keys_cpu.h"

namespace voxconv {

// Keys ascend with z fastest. The voxels q + d for all offsets d of one (x, y) are thus neighbours
// in the source. The sorted segment of the lowest offset is merged with the source. A few steps
// from there find the other offsets' voxels, if a query has any in reach. K = 27 takes 9 merges, or
// 5 if `symmetric` is set. A binary search happens only where a piece of a merge starts. If the
// source is much denser than the queries, the merge gallops. O(columns x (N_in + N_out) + pairs).
absl::StatusOr<KernelMap> ZWalkSearch(const SortedSearch& search, const SortedKeys& outputs,
                                      const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_Z_WALK_CPU_H_
