// The searches on the CUDA backend, named as those on the CPU. All write a neighbour table with
// masks, uncounted.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_SORTED_SEARCH_CUDA_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_SORTED_SEARCH_CUDA_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/mapping.h"
#include "mapping/sorted_search/sorted_keys_cuda.h"

namespace voxconv {

// What every search is given. References only.
struct SortedSearchCuda {
  const MapProblem& problem;
  const SortedKeysCuda& source;  // the inputs
  bool symmetric;                // probe only the offsets below the centre
};

// A binary search of the whole source for each output row and offset, in the order of the rows.
absl::StatusOr<KernelMap> NaiveSearch(const SortedSearchCuda& search,
                                      const ExecutionContext& context);

// Materialises the queries q + d of all offsets, sorts them (under Stage::kIndexBuild) and searches
// the source for them in that order. 36 bytes a query of scratch, 48 where there are more than
// `most_narrow` queries, whose names then take 64 bits instead of 32; only tests give another.
absl::StatusOr<KernelMap> FullSearch(const SortedSearchCuda& search,
                                     const ExecutionContext& context,
                                     int64_t most_narrow = INT32_MAX);

// A binary search of the whole source for each query of the sorted segments, which are never
// materialised: the threads of a warp take nearly the same path (Minuet's SS).
absl::StatusOr<KernelMap> SegmentedSearch(const SortedSearchCuda& search,
                                          const SortedKeysCuda& outputs,
                                          const ExecutionContext& context);

// Minuet 5.1.2 (SS + DTBS): backward search of the last key of every block of `source_block` source
// keys in each segment; a thread block for every `query_block` queries of what lies between two of
// these, with the source block in shared memory where it fits.
absl::StatusOr<KernelMap> DoubleTraversedSearch(const SortedSearchCuda& search,
                                                const SortedKeysCuda& outputs, int64_t source_block,
                                                int64_t query_block,
                                                const ExecutionContext& context);

// One binary search for all offsets of a query that differ in z alone, and a short walk along z
// from there.
absl::StatusOr<KernelMap> ZWalkSearch(const SortedSearchCuda& search, const SortedKeysCuda& outputs,
                                      const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_SORTED_SEARCH_CUDA_H_
