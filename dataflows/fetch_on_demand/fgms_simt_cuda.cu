// SPDX-License-Identifier: Apache-2.0
// FGMS by fused multiply-adds: strict f32, and every precision on devices whose tensor cores lack
// it.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/dataflows/fetch_on_demand/fgms_tile.cuh"

namespace voxconv {
namespace {

constexpr int kThreads = 128;
constexpr int kDepth = 16;  // input channels of a step

// Elements [i, i + 4) of a row of `size`, widened; zeros behind its end. kVector: size is a
// multiple of 4 and the row 16-byte aligned.
template <bool kVector, typename T>
__device__ __forceinline__ float4 LoadFour(const T* row, int64_t i, int64_t size) {
  static_assert(!kVector || std::is_same_v<T, float>);
  float4 value{0, 0, 0, 0};
  if constexpr (kVector) {
    if (i < size) value = *reinterpret_cast<const float4*>(row + i);
  } else {
    if (i < size) value.x = Widen(row[i]);
    if (i + 1 < size) value.y = Widen(row[i + 1]);
    if (i + 2 < size) value.z = Widen(row[i + 2]);
    if (i + 3 < size) value.w = Widen(row[i + 3]);
  }
  return value;
}

// A tile of kPairs x kChannels; a thread has kRows x 4 of it.
template <typename T, int kChannels, bool kVector>
struct SimtTile {
  static constexpr int kRows = kChannels == 16 ? 4 : 8;
  static constexpr int kColumnThreads = kChannels / 4;
  static constexpr int kPairs = kThreads / kColumnThreads * kRows;
  static constexpr int kInputVectors = kPairs * kDepth / 4 / kThreads;  // loaded by a thread
  static constexpr int kWeightVectors = (kDepth * kChannels / 4 + kThreads - 1) / kThreads;
  static constexpr int kInputStride = kPairs + 4;
  static_assert(kThreads % (kDepth / 4) == 0);

  struct Shared {
    float input[2][kDepth][kInputStride];  // transposed: a step reads kRows of it at once
    float weights[2][kDepth][kChannels];
  };
  struct Loads {
    float4 input[kInputVectors];
    float4 weights[kWeightVectors];
  };

  // The steps of the loads are the same in Fetch and Store: vector v of this thread.
  static __device__ int InputRow(int v) { return (v * kThreads + threadIdx.x) / (kDepth / 4); }
  static __device__ int InputDepth() { return threadIdx.x % (kDepth / 4) * 4; }
  static __device__ int WeightDepth(int v) {
    return (v * kThreads + threadIdx.x) / (kChannels / 4);
  }
  static __device__ int WeightChannel() { return threadIdx.x % (kChannels / 4) * 4; }

  // `rows`: the input row of every vector, -1 = none; `weights`: [c_in, c_out] of this offset.
  static __device__ void Fetch(const FgmsOperands& operands, const int64_t (&rows)[kInputVectors],
                               const T* weights, int64_t channel, int64_t depth, Loads& loads) {
    const T* input = static_cast<const T*>(operands.input);
#pragma unroll
    for (int v = 0; v < kInputVectors; ++v) {
      loads.input[v] = rows[v] < 0 ? float4{0, 0, 0, 0}
                                   : LoadFour<kVector>(input + rows[v] * operands.c_in,
                                                       depth + InputDepth(), operands.c_in);
    }
#pragma unroll
    for (int v = 0; v < kWeightVectors; ++v) {
      const int64_t row = depth + WeightDepth(v);
      loads.weights[v] = WeightDepth(v) >= kDepth || row >= operands.c_in
                             ? float4{0, 0, 0, 0}
                             : LoadFour<kVector>(weights + row * operands.c_out,
                                                 channel + WeightChannel(), operands.c_out);
    }
  }

  static __device__ void Store(const Loads& loads, Shared& shared, int buffer) {
#pragma unroll
    for (int v = 0; v < kInputVectors; ++v) {
      float(*column)[kInputStride] = &shared.input[buffer][InputDepth()];
      column[0][InputRow(v)] = loads.input[v].x;
      column[1][InputRow(v)] = loads.input[v].y;
      column[2][InputRow(v)] = loads.input[v].z;
      column[3][InputRow(v)] = loads.input[v].w;
    }
#pragma unroll
    for (int v = 0; v < kWeightVectors; ++v) {
      if (WeightDepth(v) >= kDepth) continue;
      *reinterpret_cast<float4*>(&shared.weights[buffer][WeightDepth(v)][WeightChannel()]) =
          loads.weights[v];
    }
  }

  // `depth` input channels are there; those up to a multiple of 4 are zero.
  static __device__ void Multiply(const Shared& shared, int buffer, int depth,
                                  float (&sum)[kRows][4]) {
    const int row = threadIdx.x / kColumnThreads * kRows;
    const int column = threadIdx.x % kColumnThreads * 4;
    for (int base = 0; base < depth; base += 4) {
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        float input[kRows];
#pragma unroll
        for (int i = 0; i < kRows; i += 4) {
          *reinterpret_cast<float4*>(&input[i]) =
              *reinterpret_cast<const float4*>(&shared.input[buffer][base + d][row + i]);
        }
        const float4 weight =
            *reinterpret_cast<const float4*>(&shared.weights[buffer][base + d][column]);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          sum[i][0] = fmaf(input[i], weight.x, sum[i][0]);
          sum[i][1] = fmaf(input[i], weight.y, sum[i][1]);
          sum[i][2] = fmaf(input[i], weight.z, sum[i][2]);
          sum[i][3] = fmaf(input[i], weight.w, sum[i][3]);
        }
      }
    }
  }
};

template <typename T, int kChannels, bool kVector>
__global__ void __launch_bounds__(kThreads)
    FgmsSimt(const __grid_constant__ FgmsSegments segments,
             const __grid_constant__ FgmsOperands operands) {
  using Tile = SimtTile<T, kChannels, kVector>;
  __shared__ __align__(16) typename Tile::Shared shared;
  const FgmsTilePairs pairs = PairsOfTile<Tile::kPairs>(segments, blockIdx.x);
  const int64_t channel = int64_t{blockIdx.y} * kChannels;
  const int64_t c_in = operands.c_in, c_out = operands.c_out;
  const T* weights = static_cast<const T*>(operands.weights) + pairs.offset * c_in * c_out;

  int64_t rows[Tile::kInputVectors];
#pragma unroll
  for (int v = 0; v < Tile::kInputVectors; ++v) {
    const int64_t pair = pairs.begin + Tile::InputRow(v);
    rows[v] = pair < pairs.end ? operands.in[pair] : -1;
  }
  float sum[Tile::kRows][4] = {};
  typename Tile::Loads loads;
  Tile::Fetch(operands, rows, weights, channel, 0, loads);
  Tile::Store(loads, shared, 0);
  __syncthreads();
  int buffer = 0;
  for (int64_t depth = 0; depth < c_in; depth += kDepth, buffer ^= 1) {
    const bool more = depth + kDepth < c_in;
    if (more) Tile::Fetch(operands, rows, weights, channel, depth + kDepth, loads);
    Tile::Multiply(shared, buffer, static_cast<int>(min(c_in - depth, int64_t{kDepth})), sum);
    if (more) Tile::Store(loads, shared, buffer ^ 1);
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < Tile::kRows; ++i) {
    const int64_t pair = pairs.begin + threadIdx.x / Tile::kColumnThreads * Tile::kRows + i;
    if (pair >= pairs.end) continue;
    WriteToRow(operands, operands.sum + operands.out[pair] * c_out,
               channel + static_cast<int>(threadIdx.x) % Tile::kColumnThreads * 4,
               float4{sum[i][0], sum[i][1], sum[i][2], sum[i][3]});
  }
}

template <typename T, int kChannels, bool kVector>
absl::Status LaunchTile(const FgmsSegments& segments, const FgmsOperands& operands,
                        const ExecutionContext& context) {
  const dim3 grid(static_cast<unsigned>(segments.num_tiles()),
                  static_cast<unsigned>(CeilDiv(operands.c_out, kChannels)));
  VOXCONV_LAUNCH((FgmsSimt<T, kChannels, kVector>), grid, kThreads, 0, context, segments, operands);
  return absl::OkStatus();
}

template <bool kVector>
absl::Status LaunchF32(const FgmsTile& tile, const FgmsSegments& segments,
                       const FgmsOperands& operands, const ExecutionContext& context) {
  if (tile.channels == 16) return LaunchTile<float, 16, kVector>(segments, operands, context);
  if (tile.channels == 32) return LaunchTile<float, 32, kVector>(segments, operands, context);
  VOXCONV_CHECK(tile.channels == 64);
  return LaunchTile<float, 64, kVector>(segments, operands, context);
}

}  // namespace

absl::Status LaunchFgmsSimt(const FgmsTile& tile, const FgmsSegments& segments,
                            const FgmsOperands& operands, const ExecutionContext& context) {
  if (operands.precision == Precision::kF16) {
    VOXCONV_CHECK(tile.channels == 32);
    return LaunchTile<__half, 32, false>(segments, operands, context);
  }
  if (operands.precision == Precision::kBF16) {
    VOXCONV_CHECK(tile.channels == 32);
    return LaunchTile<__nv_bfloat16, 32, false>(segments, operands, context);
  }
  const bool vector = operands.c_in % 4 == 0 && operands.c_out % 4 == 0 &&
                      Aligned({operands.input, operands.weights}, 16);
  return vector ? LaunchF32<true>(tile, segments, operands, context)
                : LaunchF32<false>(tile, segments, operands, context);
}

}  // namespace voxconv
