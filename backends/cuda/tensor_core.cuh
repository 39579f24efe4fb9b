// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies to shared memory and tensor-core products. Each function is one PTX
// instruction. Copies and products exist from compute capability 8.0 on.
#ifndef VOXCONV_BACKENDS_CUDA_TENSOR_CORE_CUH_
#define VOXCONV_BACKENDS_CUDA_TENSOR_CORE_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cfloat>
#include <cstdint>

namespace voxconv {

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes to shared memory and bypasses the L1 cache. If `valid` is false, it writes zeros
// and does not read `from`.
__device__ __forceinline__ void CopyAsync16(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
// Copies 4 bytes to shared memory.
__device__ __forceinline__ void CopyAsync4(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to), "l"(from) : "memory");
}
// The copies of this thread since the last commit become one group.
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
// Waits until at most kPending groups of this thread are unfinished.
template <int kPending>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ uint32_t LoadShared(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(value) : "r"(address) : "memory");
  return value;
}

// Loads four 8x8 matrices of 16-bit elements. Lane l gives the address of row l % 8 of matrix l
// / 8.
__device__ __forceinline__ void LoadMatrices(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ __forceinline__ void LoadMatricesTransposed(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

// Transposes an 8x8 matrix of 16-bit elements: lane l has elements 2 q and 2 q + 1, q = l % 4, of
// row l / 4, before and after.
__device__ __forceinline__ uint32_t TransposeMatrix(uint32_t elements) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n"
               : "=r"(transposed)
               : "r"(elements));
  return transposed;
}
// As above for floats. It transposes their upper and their lower halves separately.
__device__ __forceinline__ float2 TransposeMatrix(float2 elements) {
  const uint32_t x = __float_as_uint(elements.x), y = __float_as_uint(elements.y);
  const uint32_t low = TransposeMatrix(__byte_perm(x, y, 0x5410));
  const uint32_t high = TransposeMatrix(__byte_perm(x, y, 0x7632));
  return {__uint_as_float(__byte_perm(low, high, 0x5410)),
          __uint_as_float(__byte_perm(low, high, 0x7632))};
}

// Rounds a float to tf32. Without this, the tensor core cuts off the low bits.
__device__ __forceinline__ uint32_t RoundToTf32(uint32_t bits) {
  uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(rounded) : "f"(__uint_as_float(bits)));
  return rounded;
}

// A float as tf32 numbers, such that x w = rest * w.whole + factor * w.rest + whole * w.whole, up
// to the product of both remainders.
// - For a finite number `whole` and `factor` are the number rounded, or cut off where rounding
// would
//   make it infinite, and `rest` is what that took away, rounded. whole + rest differs from the
//   number by at most 2^-22 of it, unless the remainder is denormal.
// - Infinities and NaN have no remainder as a left operand: `factor` is one of the same sign, so
// that
//   nothing but `whole` multiplies, and adds finite numbers to what is not finite.
struct SplitFloat {
  uint32_t whole, rest, factor;
};
__device__ __forceinline__ bool IsFiniteFloat(uint32_t bits) {
  return fabsf(__uint_as_float(bits)) <= FLT_MAX;
}
__device__ __forceinline__ SplitFloat SplitToTf32(uint32_t bits) {
  constexpr uint32_t kSign = 0x80000000, kOne = 0x3F800000, kTf32Bits = 0xFFFFE000;
  SplitFloat split;
  split.whole = RoundToTf32(bits);
  if (!IsFiniteFloat(split.whole) && IsFiniteFloat(bits)) split.whole = bits & kTf32Bits;
  const float rest = __uint_as_float(bits) - __uint_as_float(split.whole);
  const bool finite = IsFiniteFloat(split.whole);
  split.rest = finite ? RoundToTf32(__float_as_uint(rest)) : 0;
  split.factor = finite ? split.whole : (bits & kSign) | kOne;
  return split;
}
// The same for the four numbers of a fragment. Numbers that are all finite, and stay so when they
// are rounded, take no more instructions than a split that knows no others.
struct SplitFragment {
  uint32_t whole[4], rest[4], factor[4];

  __device__ __forceinline__ explicit SplitFragment(const uint32_t (&bits)[4]) {
    float left[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      whole[i] = RoundToTf32(bits[i]);
      left[i] = __uint_as_float(bits[i]) - __uint_as_float(whole[i]);
    }
    // What is left of an infinity or NaN is NaN, and of what rounds to infinity an infinity.
    const float sum = fabsf(left[0]) + fabsf(left[1]) + (fabsf(left[2]) + fabsf(left[3]));
    if (sum <= FLT_MAX) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        rest[i] = RoundToTf32(__float_as_uint(left[i]));
        factor[i] = whole[i];
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const SplitFloat split = SplitToTf32(bits[i]);
      whole[i] = split.whole;
      rest[i] = split.rest;
      factor[i] = split.factor;
    }
  }
};
// The right operand of such a product, as what its `whole` or its `rest` is. An infinity is one of
// its sign and an infinity as the rest: the left operand's rest, which may be 0, does not meet it.
__device__ __forceinline__ uint32_t SplitRightToTf32(uint32_t bits, bool rest) {
  const SplitFloat split = SplitToTf32(bits);
  if (IsFiniteFloat(bits)) return rest ? split.rest : split.whole;
  return rest ? bits : split.factor;
}

// Computes c += a * b with sums in f32. The shape is m16n8k16 for f16 and bf16, and m16n8k8 for
// floats that are rounded to tf32.
template <typename Element>
__device__ __forceinline__ void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1);
template <>
__device__ __forceinline__ void Mma<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void Mma<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4],
                                                   uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void Mma<float>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                           uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_TENSOR_CORE_CUH_
