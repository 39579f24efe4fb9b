// SPDX-License-Identifier: Apache-2.0
// Sorts and scans of device arrays, compiled once for all who need them.
#ifndef VOXCONV_BACKENDS_CUDA_DEVICE_PRIMITIVES_H_
#define VOXCONV_BACKENDS_CUDA_DEVICE_PRIMITIVES_H_

#include <bit>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"

namespace voxconv {

// How many bits the numbers 0 .. count - 1 need. At least one.
constexpr int BitsFor(int64_t count) {
  return count <= 2 ? 1 : std::bit_width(static_cast<uint64_t>(count - 1));
}

// The functions below queue work on the context's stream and do not synchronise it. Arrays are in
// device memory. Temporary memory comes from the context's backend; kResourceExhausted if it does
// not suffice.

// Sorts pairs (key, value) by the low `bits` bits of the keys, 1 to all, ascending and stable. All
// arrays have `size` entries and do not overlap. `values` may be null: the value of keys[i] is i.
// `sorted_keys` may be null: they are not wanted. Results are the same in every run.
// - Up to 2^18 keys: a sample sort (sample_sort.cu) of three kernels, or of one up to 2,048 keys.
//   Temporary memory: 60 bytes a key, or 112 where `bits` and the index's bits exceed 64.
// - More keys: CUB's radix sort, O(size * bits / 8).
absl::Status SortByKey(const uint32_t* keys, uint32_t* sorted_keys, const int32_t* values,
                       int32_t* sorted_values, int64_t size, int bits,
                       const ExecutionContext& context);
absl::Status SortByKey(const uint64_t* keys, uint64_t* sorted_keys, const int32_t* values,
                       int32_t* sorted_values, int64_t size, int bits,
                       const ExecutionContext& context);
// The same for values that do not fit in 32 bits, which come in large numbers: always by CUB. No
// array may be null.
absl::Status SortByKey(const uint64_t* keys, uint64_t* sorted_keys, const int64_t* values,
                       int64_t* sorted_values, int64_t size, int bits,
                       const ExecutionContext& context);

// Sorts keys alone, as SortByKey does. Returns where they are: in `keys` or in `spare`, both of
// `size` entries. The other holds no result.
absl::StatusOr<uint32_t*> SortKeys(uint32_t* keys, uint32_t* spare, int64_t size, int bits,
                                   const ExecutionContext& context);
absl::StatusOr<uint64_t*> SortKeys(uint64_t* keys, uint64_t* spare, int64_t size, int bits,
                                   const ExecutionContext& context);

// to[i] = i for i < size.
absl::Status FillWithIndex(int32_t* to, int64_t size, const ExecutionContext& context);

// sums[i] = counts[0] + ... + counts[i - 1] for i < size, in 64 bits.
absl::Status ExclusiveSum(const int32_t* counts, int64_t* sums, int64_t size,
                          const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_DEVICE_PRIMITIVES_H_
