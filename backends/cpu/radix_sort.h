// SPDX-License-Identifier: Apache-2.0
// Least-significant-digit radix sort of 64-bit keys.
#ifndef VOXCONV_BACKENDS_CPU_RADIX_SORT_H_
#define VOXCONV_BACKENDS_CPU_RADIX_SORT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/core/backend.h"

namespace voxconv {

// Sorts `keys` ascending, as unsigned numbers, on the context's threads. Takes one pass for each 11
// bits of the range of bits in which the keys differ, so that compact keys
// (backends/cpu/compact_key.h) save passes. Keys that are in order already cost one read. The
// result does not depend on the number of threads. O(passes * N). Takes temporary memory of the
// size of the arrays and a quarter of a byte for each key. The arrays may have other memory
// afterwards. kResourceExhausted if the memory does not suffice; the arrays are then as they were.
absl::Status RadixSort(Array<uint64_t>& keys, const ExecutionContext& context);

// The same, carrying `values` along with their keys; stable. Sizes must agree (checked).
absl::Status RadixSort(Array<uint64_t>& keys, Array<int32_t>& values,
                       const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_RADIX_SORT_H_
