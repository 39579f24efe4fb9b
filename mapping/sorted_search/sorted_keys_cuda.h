// Voxels in the order of their keys, in device memory: see sorted_keys_cpu.h.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_SORTED_KEYS_CUDA_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_SORTED_KEYS_CUDA_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/backend.h"
#include "core/coordinate_set.h"
#include "mapping/sorted_search/search_key.h"

namespace voxconv {

struct SortedKeysCuda {
  Array<uint64_t> keys;  // [size + 1], ascending; the last is kEndKey
  Array<int32_t> rows;   // [size] row of every position; empty where positions are rows

  int64_t size() const { return keys.size() - 1; }
  int64_t bytes() const { return keys.bytes() + rows.bytes(); }
};

// Many voxels: a radix sort over the bits that tell the cells of the bounding box apart, less up to
// nine, which are put in order where they lie. Up to 2^18: a counting sort by the upper 14 of these
// bits, and comparisons within its bins, O(N) for as long as voxels do not crowd in a few; N^2 / 2
// comparisons at worst. Rows that are sorted already are only packed. Deterministic: keys are
// unique.
absl::StatusOr<SortedKeysCuda> BuildSortedKeysCuda(const CoordinateSet& voxels,
                                                   const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_SORTED_KEYS_CUDA_H_
