// SPDX-License-Identifier: Apache-2.0
// Sorted keys as kernels take them. The arrays belong to a SortedKeysCuda.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_SORTED_KEYS_VIEW_CUH_
#define VOXCONV_MAPPING_SORTED_SEARCH_SORTED_KEYS_VIEW_CUH_

#include <cstdint>

#include "voxconv/mapping/sorted_search/sorted_keys_cuda.h"

namespace voxconv {

struct SortedKeysView {
  const uint64_t* keys;  // [size + 1]
  const int32_t* rows;   // [size]; null if row i is at position i
  int64_t size;

  explicit SortedKeysView(const SortedKeysCuda& sorted)
      : keys(sorted.keys.data()),
        rows(sorted.rows.size() == 0 ? nullptr : sorted.rows.data()),
        size(sorted.size()) {}

  __device__ int32_t RowAt(int64_t position) const {
    return rows == nullptr ? static_cast<int32_t>(position) : __ldg(rows + position);
  }
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_SORTED_KEYS_VIEW_CUH_
