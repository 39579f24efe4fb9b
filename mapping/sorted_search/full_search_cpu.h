// SPDX-License-Identifier: Apache-2.0
// A search that sorts the queries of all segments together. Minuet's segments avoid this.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_FULL_SEARCH_CPU_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_FULL_SEARCH_CPU_H_

#include "absl/status/statusor.h"
#include "voxconv/core/mapping.h"
#include "voxconv/mapping/sorted_search/segment_search_cpu.h"

namespace voxconv {

// Materialises the queries q + d of all offsets and sorts them under Stage::kIndexBuild. Then it
// searches the source for them in that order. Each search starts where the one before ended. It
// takes 24 bytes of scratch for each query. 2^31 queries or more are an error.
absl::StatusOr<KernelMap> FullSearch(const SortedSearch& search, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_FULL_SEARCH_CPU_H_
