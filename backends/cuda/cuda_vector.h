// SPDX-License-Identifier: Apache-2.0
// Moves of 2, 4, 8 or 16 bytes at a time.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_VECTOR_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_VECTOR_H_

#include <vector_types.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "absl/status/status.h"
#include "voxconv/core/check.h"

namespace voxconv {

inline uint64_t AddressOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// The largest power of two, up to `limit` and 16, that divides every address and size in
// `multiples`.
inline int VectorBytes(int limit, std::initializer_list<uint64_t> multiples) {
  uint64_t bits = 16;
  for (const uint64_t value : multiples) bits |= value;
  const int widest = static_cast<int>(bits & (~bits + 1));
  return widest < limit ? widest : limit;
}

// Whether all addresses are multiples of `bytes`. Null counts as a multiple.
inline bool Aligned(std::initializer_list<const void*> pointers, int64_t bytes) {
  return std::all_of(pointers.begin(), pointers.end(), [bytes](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
  });
}

template <int kBytes>
struct RawVectorOf;
template <>
struct RawVectorOf<2> {
  using Type = uint16_t;
};
template <>
struct RawVectorOf<4> {
  using Type = uint32_t;
};
template <>
struct RawVectorOf<8> {
  using Type = uint2;
};
template <>
struct RawVectorOf<16> {
  using Type = uint4;
};
// kBytes bytes of any type, which one instruction loads or stores.
template <int kBytes>
using RawVector = typename RawVectorOf<kBytes>::Type;

template <int kValue>
using Constant = std::integral_constant<int, kValue>;

// Calls body(Constant<bytes>). `bytes` is 2, 4, 8 or 16, and at least kLeast (checked). No code is
// compiled for 2 bytes if kLeast is more.
template <int kLeast = 2, typename Body>
absl::Status ForVectorBytes(int bytes, const Body& body) {
  VOXCONV_CHECK(bytes >= kLeast && bytes <= 16);
  if (bytes == 16) return body(Constant<16>{});
  if (bytes == 8) return body(Constant<8>{});
  if constexpr (kLeast <= 2) {
    if (bytes == 2) return body(Constant<2>{});
  }
  VOXCONV_CHECK(bytes == 4);
  return body(Constant<4>{});
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_VECTOR_H_
