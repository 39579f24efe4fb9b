// Sorts and scans of device arrays by CUB, compiled once for all who need them.
#ifndef VOXCONV_BACKENDS_CUDA_DEVICE_PRIMITIVES_H_
#define VOXCONV_BACKENDS_CUDA_DEVICE_PRIMITIVES_H_

#include <bit>
#include <cstdint>

#include "absl/status/status.h"
#include "core/backend.h"

namespace voxconv {

// Bits that tell 0..count-1 apart; at least one.
constexpr int BitsFor(int64_t count) {
  return count <= 2 ? 1 : std::bit_width(static_cast<uint64_t>(count - 1));
}

// Sorts (key, value) by the low `bits` bits of the keys, stable and ascending: O(size * bits / 8).
// All arrays have `size` entries of device memory and do not overlap. Temporary memory comes from
// the context's backend.
absl::Status SortByKey(const uint32_t* keys, uint32_t* sorted_keys, const int32_t* values,
                       int32_t* sorted_values, int64_t size, int bits,
                       const ExecutionContext& context);
absl::Status SortByKey(const uint64_t* keys, uint64_t* sorted_keys, const int32_t* values,
                       int32_t* sorted_values, int64_t size, int bits,
                       const ExecutionContext& context);
absl::Status SortByKey(const uint64_t* keys, uint64_t* sorted_keys, const int64_t* values,
                       int64_t* sorted_values, int64_t size, int bits,
                       const ExecutionContext& context);

// to[i] = i.
absl::Status FillWithIndex(int32_t* to, int64_t size, const ExecutionContext& context);

// sums[i] = counts[0] + ... + counts[i - 1], in 64 bits.
absl::Status ExclusiveSum(const int32_t* counts, int64_t* sums, int64_t size,
                          const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_DEVICE_PRIMITIVES_H_
