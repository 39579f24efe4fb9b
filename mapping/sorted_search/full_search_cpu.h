// All queries of all segments sorted together: what Minuet's segments avoid.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_FULL_SEARCH_CPU_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_FULL_SEARCH_CPU_H_

#include "absl/status/statusor.h"
#include "core/mapping.h"
#include "mapping/sorted_search/segment_search_cpu.h"

namespace voxconv {

// Materialises the queries q + d of all offsets, sorts them (under Stage::kIndexBuild) and searches
// the source for them in that order, each from the one before. 24 bytes a query of scratch; 2^31
// queries or more are refused here, on the CPU.
absl::StatusOr<KernelMap> FullSearch(const SortedSearch& search, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_FULL_SEARCH_CPU_H_
