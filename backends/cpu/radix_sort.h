// Least-significant-digit radix sort of 64-bit keys.
#ifndef VOXCONV_BACKENDS_CPU_RADIX_SORT_H_
#define VOXCONV_BACKENDS_CPU_RADIX_SORT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/backend.h"

namespace voxconv {

// Sorts `keys` ascending, unsigned. Only bits in which the keys differ cost anything, one pass for
// each 11 of a contiguous range: compact the keys first (backends/cpu/compact_key.h) where that
// saves passes; keys in order already cost one read. The result is the same for any number of
// threads. O(passes * N), scratch of the arrays' own size and a quarter of a byte a key; the
// arrays' memory may be exchanged for the scratch's. Fails only for lack of memory, and then leaves
// the arrays as they were.
absl::Status RadixSort(Array<uint64_t>& keys, const ExecutionContext& context);

// The same, carrying `values` along with their keys; stable. Sizes must agree (checked).
absl::Status RadixSort(Array<uint64_t>& keys, Array<int32_t>& values,
                       const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_RADIX_SORT_H_
