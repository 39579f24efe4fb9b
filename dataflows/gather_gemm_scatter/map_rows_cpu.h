// SPDX-License-Identifier: Apache-2.0
// Two types with the same functions, one for each layout of a kernel map. They find the (offset,
// position) entries of a row of features. They do not own the arrays, which lie in host memory.
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MAP_ROWS_CPU_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MAP_ROWS_CPU_H_

#include <cstdint>

#include "absl/types/span.h"

namespace voxconv {

// A position table [rows, K] (TorchSparse, Minuet).
struct DenseRows {
  const int32_t* table;
  int num_offsets;

  // Calls visit(k, position) for the entries of `row`, ascending by k. `offsets` is ascending. The
  // calls cover at least the entries under `offsets`. O(number of offsets).
  template <typename Visit>
  void ForEach(int64_t row, absl::Span<const int> offsets, const Visit& visit) const {
    const int32_t* entries = table + row * num_offsets;
    for (const int k : offsets) {
      if (entries[k] >= 0) visit(k, int64_t{entries[k]});
    }
  }
  // The position under offset k, or -1.
  int64_t Find(int64_t row, int k) const { return table[row * num_offsets + k]; }
};

// Coded CSR (PCEngine, Equation 3): code = k + K * position.
struct CodedRows {
  const int32_t* ptr;
  const uint32_t* codes;
  int num_offsets;

  // As above, but it visits all entries of `row`. O(entries of the row).
  template <typename Visit>
  void ForEach(int64_t row, absl::Span<const int>, const Visit& visit) const {
    const uint32_t scale = static_cast<uint32_t>(num_offsets);
    for (int64_t i = ptr[row]; i < ptr[row + 1]; ++i) {
      const uint32_t position = codes[i] / scale;
      visit(static_cast<int>(codes[i] - position * scale), int64_t{position});
    }
  }
  // The position under offset k, or -1. O(entries of the row).
  int64_t Find(int64_t row, int k) const {
    const uint32_t scale = static_cast<uint32_t>(num_offsets);
    for (int64_t i = ptr[row]; i < ptr[row + 1]; ++i) {
      const uint32_t position = codes[i] / scale;
      if (codes[i] - position * scale == static_cast<uint32_t>(k)) return position;
    }
    return -1;
  }
};

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MAP_ROWS_CPU_H_
