// SPDX-License-Identifier: Apache-2.0
// Sorts and scans of device arrays by CUB, compiled once for all who need them.
#ifndef VOXCONV_BACKENDS_CUDA_DEVICE_PRIMITIVES_H_
#define VOXCONV_BACKENDS_CUDA_DEVICE_PRIMITIVES_H_

#include <bit>
#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/core/backend.h"

namespace voxconv {

// How many bits the numbers 0 .. count - 1 need. At least one.
constexpr int BitsFor(int64_t count) {
  return count <= 2 ? 1 : std::bit_width(static_cast<uint64_t>(count - 1));
}

// The functions below queue work on the context's stream and do not synchronise it. Arrays are in
// device memory. Temporary memory comes from the context's backend; kResourceExhausted if it does
// not suffice.

// Sorts pairs (key, value) by the low `bits` bits of the keys, ascending and stable. All arrays
// have `size` entries and do not overlap. O(size * bits / 8).
absl::Status SortByKey(const uint32_t* keys, uint32_t* sorted_keys, const int32_t* values,
                       int32_t* sorted_values, int64_t size, int bits,
                       const ExecutionContext& context);
absl::Status SortByKey(const uint64_t* keys, uint64_t* sorted_keys, const int32_t* values,
                       int32_t* sorted_values, int64_t size, int bits,
                       const ExecutionContext& context);
absl::Status SortByKey(const uint64_t* keys, uint64_t* sorted_keys, const int64_t* values,
                       int64_t* sorted_values, int64_t size, int bits,
                       const ExecutionContext& context);

// to[i] = i for i < size.
absl::Status FillWithIndex(int32_t* to, int64_t size, const ExecutionContext& context);

// sums[i] = counts[0] + ... + counts[i - 1] for i < size, in 64 bits.
absl::Status ExclusiveSum(const int32_t* counts, int64_t* sums, int64_t size,
                          const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_DEVICE_PRIMITIVES_H_
