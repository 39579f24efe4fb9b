// SPDX-License-Identifier: Apache-2.0
// Products in full f32 for weight_gradient_kernel.cuh (H-CNN, Equation 7). They are added by fused
// multiply-and-add in the order of the pairs. Each addition rounds once, to nearest.
#ifndef VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_FULL_CUH_
#define VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_FULL_CUH_

#include <cstdint>

#include "voxconv/backends/cuda/weight_gradient_mma.h"
#include "voxconv/backends/cuda/weight_gradient_rows.cuh"

namespace voxconv {
namespace range_sums {

// A float that is multiplied as it is.
struct FullFloat {
  float value;

  FullFloat() = default;
  __device__ explicit FullFloat(float v) : value(v) {}
};

// A lane reads chunks of four channels. Of every 32 channels of x it reads chunk lane / 4, and of
// every 16 channels of dy chunk lane % 4. FirstA and FirstB return the address of the lane's first
// chunk in row 0. `channel` is a multiple of 32. Rows begin at multiples of 128 bytes.
template <>
struct Fragments<FullFloat> {
  static constexpr uint32_t kDepth = 8;

  template <int kChannels>
  static __device__ uint32_t FirstA(uint32_t channel) {
    return Rows<FullFloat, kChannels>::At(0, channel / 4 + threadIdx.x % 32 / 4);
  }
  template <int kChannels>
  static __device__ uint32_t FirstB(uint32_t channel) {
    return Rows<FullFloat, kChannels>::At(0, channel / 4 + threadIdx.x % 4);
  }
  // Loads the lane's chunk number `chunk` of row `row`. The lane's chunks are `stride` chunks
  // apart. The swizzle may flip the bit of the chunk's number that a stride of 4 sets. So the
  // distance within 128 bytes is combined by exclusive or, and the rest is added.
  template <int kChannels>
  static __device__ float4 Load(uint32_t first, int row, int chunk, int stride) {
    using R = Rows<FullFloat, kChannels>;
    const uint32_t column = static_cast<uint32_t>(chunk * stride) * kChunkBytes;
    const uint32_t at = ((first ^ (column % 128)) + column / 128 * 128) ^
                        (R::Swizzle(static_cast<uint32_t>(row)) * kChunkBytes);
    float4 value;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];\n"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(at + static_cast<uint32_t>(row) * R::kBytes)
                 : "memory");
    return value;
  }
};

// The products of a warp with kWarpIn x 32 channels.
template <int kIn, int kOut, int kWarpIn>
struct FullProducts {
  using F = Fragments<FullFloat>;
  static constexpr int kA = kWarpIn / 32, kB = 2;  // chunks of a lane
  // A lane has 4 kA channels of x times 4 kB channels of dy. The type is that of tensor-core sums,
  // which have the same size. At gives the sum of channel `a` of x and channel `b` of dy.
  using Sums = float[kWarpIn / 16][4][4];
  static __device__ float& At(Sums& sums, int a, int b) {
    return reinterpret_cast<float*>(&sums)[a * 4 * kB + b];
  }

  // Adds the products of rows [depth * kDepth, (depth + 1) * kDepth).
  static __device__ void Add(uint32_t first_a, uint32_t first_b, int depth, Sums& sums) {
#pragma unroll
    for (int p = 0; p < static_cast<int>(F::kDepth); ++p) {
      const int row = depth * static_cast<int>(F::kDepth) + p;
      float a[4 * kA], b[4 * kB];
#pragma unroll
      for (int i = 0; i < kA; ++i) Put(F::Load<kIn>(first_a, row, i, 8), a + 4 * i);
#pragma unroll
      for (int i = 0; i < kB; ++i) Put(F::Load<kOut>(first_b, row, i, 4), b + 4 * i);
#pragma unroll
      for (int i = 0; i < 4 * kA; ++i) {
#pragma unroll
        for (int j = 0; j < 4 * kB; ++j) At(sums, i, j) = fmaf(a[i], b[j], At(sums, i, j));
      }
    }
  }

  // Writes the sums of the warp's channels, which begin at `in` and `out`, to [c_in, c_out].
  static __device__ void Write(const Sums& sums, int64_t in, int64_t out,
                               const RangeOperands& operands, float* to) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const float* const own = reinterpret_cast<const float*>(&sums);
#pragma unroll
    for (int i = 0; i < 4 * kA; ++i) {
      const int64_t row = in + i / 4 * 32 + lane / 4 * 4 + i % 4;
      if (row >= operands.c_in) continue;
#pragma unroll
      for (int j = 0; j < 4 * kB; ++j) {
        const int64_t column = out + j / 4 * 16 + lane % 4 * 4 + j % 4;
        if (column < operands.c_out) to[row * operands.c_out + column] = own[i * 4 * kB + j];
      }
    }
  }

 private:
  static __device__ void Put(const float4& from, float* to) {
    to[0] = from.x;
    to[1] = from.y;
    to[2] = from.z;
    to[3] = from.w;
  }
};

}  // namespace range_sums
}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_FULL_CUH_
