// SPDX-License-Identifier: Apache-2.0
// The searches on the CUDA backend. They have the names of those on the CPU. Each but
// OffsetMajorSearch returns a neighbour table with masks, whose pairs are not counted.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_SORTED_SEARCH_CUDA_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_SORTED_SEARCH_CUDA_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "voxconv/core/mapping.h"
#include "voxconv/mapping/sorted_search/sorted_keys_cuda.h"

namespace voxconv {

// The arguments of every search. It owns nothing.
struct SortedSearchCuda {
  const MapProblem& problem;
  const SortedKeysCuda& source;  // the inputs
  bool symmetric;                // probe only the offsets below the centre
};

// A binary search of the whole source for each output row and offset, in the order of the rows.
absl::StatusOr<KernelMap> NaiveSearch(const SortedSearchCuda& search,
                                      const ExecutionContext& context);

// Materialises the queries q + d of all offsets and sorts them under Stage::kIndexBuild. Then it
// searches the source for them in that order. It takes 36 bytes of scratch for each query. More
// than `most_narrow` queries need indices of 64 bits and take 48 bytes each. Only tests set
// `most_narrow`.
absl::StatusOr<KernelMap> FullSearch(const SortedSearchCuda& search,
                                     const ExecutionContext& context,
                                     int64_t most_narrow = INT32_MAX);

// Minuet's SS: a binary search of the whole source for each query of the sorted segments. The
// threads of a warp take nearly the same path. The segments are never materialised.
absl::StatusOr<KernelMap> SegmentedSearch(const SortedSearchCuda& search,
                                          const SortedKeysCuda& outputs,
                                          const ExecutionContext& context);

// Minuet's SS + DTBS (5.1.2). The source is cut into blocks of `source_block` keys. A backward
// search finds the last key of each block in each segment, which cuts the segments. A thread block
// searches up to `query_block` queries in their source block. The source block is in shared memory
// if it fits.
absl::StatusOr<KernelMap> DoubleTraversedSearch(const SortedSearchCuda& search,
                                                const SortedKeysCuda& outputs, int64_t source_block,
                                                int64_t query_block,
                                                const ExecutionContext& context);

// DoubleTraversedSearch with the results that Minuet's release has: a table [K, N_out], of which
// every query writes its entry. The pairs that are read from the table are the map. It waits for
// their number. search.symmetric must not be set (checked).
absl::StatusOr<KernelMap> OffsetMajorSearch(const SortedSearchCuda& search,
                                            const SortedKeysCuda& outputs, int64_t source_block,
                                            int64_t query_block, const ExecutionContext& context);

// One binary search for all offsets of a query that differ only in z, then a short walk along z.
absl::StatusOr<KernelMap> ZWalkSearch(const SortedSearchCuda& search, const SortedKeysCuda& outputs,
                                      const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_SORTED_SEARCH_CUDA_H_
