// SPDX-License-Identifier: Apache-2.0
// Rows of x and dy in shared memory, and what a warp's tensor-core products read of them, for
// weight_gradient_kernel.cuh.
#ifndef VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_ROWS_CUH_
#define VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_ROWS_CUH_

#include <cstdint>

#include "voxconv/backends/cuda/copy_chunk.cuh"
#include "voxconv/backends/cuda/tensor_core.cuh"

namespace voxconv {
namespace range_sums {

// One operand's rows of a step, [pairs, kChannels], in shared memory. The 16-byte columns of a row
// are swizzled: column c is at c ^ Swizzle(row), so that the rows that are read together lie in
// different banks. All arithmetic is unsigned, which takes fewer instructions.
template <typename T, int kChannels>
struct Rows {
  static constexpr uint32_t kBytes = kChannels * sizeof(T);  // of a row
  static constexpr uint32_t kColumns = kBytes / kChunkBytes;
  static constexpr uint32_t kColumnElements = kChunkBytes / sizeof(T);
  // Rows that are so far apart have the same swizzle.
  static constexpr uint32_t kPeriod = sizeof(T) == 4 ? 4 : 8;

  static __device__ uint32_t Swizzle(uint32_t row) {
    if constexpr (sizeof(T) == 4) return row % 4 * 2;
    return kColumns == 4 ? row / 2 % 4 : row % 8;
  }
  static __device__ uint32_t At(uint32_t row, uint32_t column) {
    return row * kBytes + (column ^ Swizzle(row)) * kChunkBytes;
  }
};

// Fragments of transposed rows. The channels of an operand are the rows (a) or the columns (b) of
// the product. FirstA and FirstB give the address of what a lane reads for channels [channel,
// channel + 16) of the first pairs, relative to the rows. `channel` is a multiple of 32. LoadA and
// LoadB take this address, the number `block` of 16 channels from `channel` on, and the number
// `depth` of a block of pairs. `block` sets other bits of a column's number than `channel` and the
// lane do. Hence an exclusive or moves the swizzled address by `block`. Rows begin at multiples of
// 128 bytes.
template <typename T>
struct Fragments {
  static constexpr uint32_t kDepth = 16;
  static constexpr uint32_t kBlockBytes = 16 * sizeof(T);

  template <int kChannels>
  static __device__ uint32_t FirstA(uint32_t channel) {
    const uint32_t lane = threadIdx.x % 32;
    return Rows<T, kChannels>::At(lane / 16 * 8 + lane % 8, channel / 8 + lane / 8 % 2);
  }
  template <int kChannels>
  static __device__ uint32_t FirstB(uint32_t channel) {
    const uint32_t lane = threadIdx.x % 32;
    return Rows<T, kChannels>::At(lane % 16, channel / 8 + lane / 16);
  }
  template <int kChannels>
  static __device__ void LoadA(uint32_t first, int block, int depth, uint32_t (&a)[4]) {
    LoadMatricesTransposed((first ^ block * kBlockBytes) + depth * kDepth * kChannels * sizeof(T),
                           a);
  }
  // b[n]: columns [8 n, 8 n + 8) of the block.
  template <int kChannels>
  static __device__ void LoadB(uint32_t first, int block, int depth, uint32_t (&b)[2][2]) {
    uint32_t r[4];
    LoadMatricesTransposed((first ^ block * kBlockBytes) + depth * kDepth * kChannels * sizeof(T),
                           r);
    b[0][0] = r[0];
    b[0][1] = r[1];
    b[1][0] = r[2];
    b[1][1] = r[3];
  }
};

// tf32: stored as f32 and rounded here.
template <>
struct Fragments<float> {
  static constexpr uint32_t kDepth = 8;
  static constexpr uint32_t kBlockBytes = 64;

  template <int kChannels>
  static __device__ uint32_t FirstA(uint32_t channel) {
    const uint32_t lane = threadIdx.x % 32;
    return Rows<float, kChannels>::At(lane % 4, channel / 4 + lane / 16) + lane / 4 % 4 * 4;
  }
  template <int kChannels>
  static __device__ uint32_t FirstB(uint32_t channel) {
    return FirstA<kChannels>(channel);
  }
  // Pair lane % 4 (+ 4), channel lane / 4 (+ 8 if `upper`).
  template <int kChannels>
  static __device__ uint32_t Load(uint32_t first, int block, int depth, bool upper, bool later) {
    const uint32_t at = first ^ (block * kBlockBytes + (upper ? kBlockBytes / 2 : 0));
    return RoundToTf32(
        LoadShared(at + (depth * kDepth + (later ? 4 : 0)) * Rows<float, kChannels>::kBytes));
  }
  template <int kChannels>
  static __device__ void LoadA(uint32_t first, int block, int depth, uint32_t (&a)[4]) {
    a[0] = Load<kChannels>(first, block, depth, false, false);
    a[1] = Load<kChannels>(first, block, depth, true, false);
    a[2] = Load<kChannels>(first, block, depth, false, true);
    a[3] = Load<kChannels>(first, block, depth, true, true);
  }
  template <int kChannels>
  static __device__ void LoadB(uint32_t first, int block, int depth, uint32_t (&b)[2][2]) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      b[n][0] = Load<kChannels>(first, block, depth, n == 1, false);
      b[n][1] = Load<kChannels>(first, block, depth, n == 1, true);
    }
  }
};

}  // namespace range_sums
}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_ROWS_CUH_
