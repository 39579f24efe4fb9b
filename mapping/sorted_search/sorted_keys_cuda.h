// SPDX-License-Identifier: Apache-2.0
// Voxels in the order of their keys, in device memory. sorted_keys_cpu.h has the host's form.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_SORTED_KEYS_CUDA_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_SORTED_KEYS_CUDA_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/mapping/sorted_search/search_key.h"

namespace voxconv {

struct SortedKeysCuda {
  Array<uint64_t> keys;  // [size + 1], ascending; the last is kEndKey
  Array<int32_t> rows;   // [size] row at each position; empty if row i is at position i

  int64_t size() const { return keys.size() - 1; }
  int64_t bytes() const { return keys.bytes() + rows.bytes(); }
};

// Sorts the voxels by key. If the rows are sorted already, it only packs the keys. The result is
// deterministic, because keys are unique.
// - More than 2^18 voxels: a radix sort over the bits that tell the bounding box's cells apart. It
//   leaves out up to nine low bits, and then orders neighbours by these bits in place.
// - Up to 2^18 voxels: a counting sort by the upper 14 of these bits, and comparisons within its
//   bins. O(N), unless most voxels are in a few bins; N^2 / 2 comparisons at worst.
absl::StatusOr<SortedKeysCuda> BuildSortedKeysCuda(const CoordinateSet& voxels,
                                                   const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_SORTED_KEYS_CUDA_H_
