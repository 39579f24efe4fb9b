// SPDX-License-Identifier: Apache-2.0
// FGMS on tensor cores: mma.sync m16n8k16 for f16 and bf16, m16n8k8 for tf32; compute capability
// 8.0 and later.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "voxconv/backends/cuda/copy_chunk.cuh"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/cuda_vector.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/backends/cuda/tensor_core.cuh"
#include "voxconv/dataflows/fetch_on_demand/fgms_tile.cuh"

// What only the kernel uses, which is empty for older devices.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#pragma nv_diag_suppress 177
#endif

namespace voxconv {
namespace {

// Input rows are gathered straight into shared memory, kStages steps of kStepBytes ahead.
constexpr int kStages = 3;
constexpr int kStepBytes = 64;  // of an input row
constexpr int kPadBytes = 16;   // keeps the rows that ldmatrix reads together in different banks
constexpr int kPairs = 128;
constexpr int kWarpPairs = 32;

// 16-bit types: a step is two matrices deep.
template <typename T>
struct Fragments {
  static constexpr int kDepth = 16;
  uint32_t a[2][4];

  __device__ void LoadInputs(const char* rows, int stride, int depth) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const char* from = rows + (m * 16 + lane % 16) * stride + depth * 2 + lane / 16 * 16;
      LoadMatrices(SharedAddress(from), a[m]);
    }
  }
  // Output channels [channel, channel + 16).
  __device__ void LoadWeights(const char* rows, int stride, int depth, int channel,
                              uint32_t (&b)[2][2]) const {
    const int lane = threadIdx.x % 32;
    const char* from = rows + (depth + lane % 16) * stride + channel * 2 + lane / 16 * 16;
    uint32_t r[4];
    LoadMatricesTransposed(SharedAddress(from), r);
    b[0][0] = r[0];
    b[0][1] = r[1];
    b[1][0] = r[2];
    b[1][1] = r[3];
  }
  __device__ void Multiply(int m, const uint32_t (&b)[2], float (&c)[4]) const {
    Mma<T>(c, a[m], b[0], b[1]);
  }
};

// tf32: stored as f32 and rounded here; the tensor core would cut the bits off instead.
template <>
struct Fragments<float> {
  static constexpr int kDepth = 8;
  uint32_t a[2][4];

  static __device__ uint32_t Round(const char* from) {
    return RoundToTf32(*reinterpret_cast<const uint32_t*>(from));
  }
  __device__ void LoadInputs(const char* rows, int stride, int depth) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const char* from = rows + (m * 16 + lane / 4) * stride + (depth + lane % 4) * 4;
      a[m][0] = Round(from);
      a[m][1] = Round(from + 8 * stride);
      a[m][2] = Round(from + 16);
      a[m][3] = Round(from + 8 * stride + 16);
    }
  }
  __device__ void LoadWeights(const char* rows, int stride, int depth, int channel,
                              uint32_t (&b)[2][2]) const {
    const int lane = threadIdx.x % 32;
    const char* from = rows + (depth + lane % 4) * stride + (channel + lane / 4) * 4;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      b[n][0] = Round(from + n * 32);
      b[n][1] = Round(from + n * 32 + 4 * stride);
    }
  }
  __device__ void Multiply(int m, const uint32_t (&b)[2], float (&c)[4]) const {
    Mma<float>(c, a[m], b[0], b[1]);
  }
};

// kPairs x kChannels; warps of kWarpPairs x kWarpChannels. kVector: rows of the inputs and weights
// are whole chunks, aligned.
template <typename T, int kChannels, bool kVector>
struct MmaTile {
  static constexpr int kWarpChannels = kChannels < 64 ? kChannels : 64;
  static constexpr int kThreads = kPairs / kWarpPairs * (kChannels / kWarpChannels) * 32;
  static constexpr int kSize = sizeof(T);
  static constexpr int kStep = kStepBytes / kSize;  // input channels
  static constexpr int kChunk = kChunkBytes / kSize;
  static constexpr int kInputStride = kStepBytes + kPadBytes;  // bytes
  static constexpr int kWeightStride = (kChannels + (kSize == 4 ? 8 : kPadBytes / kSize)) * kSize;
  static constexpr int kInputBytes = kPairs * kInputStride;
  static constexpr int kStageBytes = kInputBytes + kStep * kWeightStride;
  static constexpr int kSharedBytes = kStages * kStageBytes;
  static constexpr int kRowChunks = kStepBytes / kChunkBytes;
  static constexpr int kInputLoads = kPairs * kRowChunks / kThreads;  // of a thread
  static constexpr int kWeightRowChunks = kChannels / kChunk;
  static constexpr int kWeightChunks = kStep * kWeightRowChunks;

  // Queues the copies of one stage: the inputs of `rows` (of this thread, -1 = none) and the
  // weights [c_in, c_out] from `channel` on, from input channel `depth` on.
  static __device__ void Load(char* stage, const FgmsOperands& operands,
                              const int32_t (&rows)[kInputLoads], const T* weights, int64_t channel,
                              int64_t depth) {
    const T* input = static_cast<const T*>(operands.input);
    const int chunk = threadIdx.x % kRowChunks;
#pragma unroll
    for (int v = 0; v < kInputLoads; ++v) {
      const int row = (v * kThreads + threadIdx.x) / kRowChunks;
      CopyChunk<T, kVector>(stage + row * kInputStride + chunk * kChunkBytes,
                            input + max(rows[v], 0) * operands.c_in, depth + chunk * kChunk,
                            operands.c_in, rows[v] >= 0);
    }
    char* to = stage + kInputBytes;
#pragma unroll
    for (int first = 0; first < kWeightChunks; first += kThreads) {
      const int i = first + static_cast<int>(threadIdx.x);
      if (kWeightChunks % kThreads != 0 && i >= kWeightChunks) break;
      const int row = i / kWeightRowChunks, column = i % kWeightRowChunks;
      const bool valid = depth + row < operands.c_in;
      CopyChunk<T, kVector>(to + row * kWeightStride + column * kChunkBytes,
                            weights + (valid ? depth + row : 0) * operands.c_out,
                            channel + column * kChunk, operands.c_out, valid);
    }
  }

  // `depth` input channels are there; the others are zeros.
  static __device__ void Multiply(const char* stage, int64_t depth,
                                  float (&sum)[2][kWarpChannels / 8][4]) {
    const int warp = threadIdx.x / 32;
    const char* inputs = stage + warp % 4 * kWarpPairs * kInputStride;
    const int channel = warp / 4 * kWarpChannels;
    Fragments<T> fragments;
#pragma unroll
    for (int d = 0; d < kStep; d += Fragments<T>::kDepth) {
      if (d >= depth) break;
      fragments.LoadInputs(inputs, kInputStride, d);
#pragma unroll
      for (int n = 0; n < kWarpChannels / 8; n += 2) {
        uint32_t weights[2][2];
        fragments.LoadWeights(stage + kInputBytes, kWeightStride, d, channel + n * 8, weights);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          fragments.Multiply(m, weights[0], sum[m][n]);
          fragments.Multiply(m, weights[1], sum[m][n + 1]);
        }
      }
    }
  }

  // A thread has two neighbouring channels of rows g and g + 8 of every fragment; a pair of threads
  // trades halves so that each writes four neighbours of one row.
  static __device__ void Write(const FgmsOperands& operands, const FgmsTilePairs& pairs,
                               int64_t channel, const float (&sum)[2][kWarpChannels / 8][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool odd = lane % 2 != 0;
    channel += warp / 4 * kWarpChannels + lane % 4 / 2 * 4;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const int64_t pair = pairs.begin + warp % 4 * kWarpPairs + m * 16 + lane / 4 + (odd ? 8 : 0);
      const bool valid = pair < pairs.end;
      float* row = operands.sum + (valid ? operands.out[pair] : 0) * operands.c_out;
#pragma unroll
      for (int n = 0; n < kWarpChannels / 8; ++n) {
        const float(&c)[4] = sum[m][n];
        const float x = __shfl_xor_sync(0xffffffffu, odd ? c[0] : c[2], 1);
        const float y = __shfl_xor_sync(0xffffffffu, odd ? c[1] : c[3], 1);
        const float4 four = odd ? float4{x, y, c[2], c[3]} : float4{c[0], c[1], x, y};
        if (valid) {
          WriteToRow(operands, row, channel + n * 8, four);
        }
      }
    }
  }
};

template <typename T, int kChannels, bool kVector>
__global__ void __launch_bounds__(MmaTile<T, kChannels, kVector>::kThreads)
    FgmsMma(const __grid_constant__ FgmsSegments segments,
            const __grid_constant__ FgmsOperands operands) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using Tile = MmaTile<T, kChannels, kVector>;
  extern __shared__ __align__(128) char shared[];
  const FgmsTilePairs pairs = PairsOfTile<kPairs>(segments, blockIdx.x);
  const int64_t channel = int64_t{blockIdx.y} * kChannels;
  const int64_t c_in = operands.c_in;
  const T* weights = static_cast<const T*>(operands.weights) + pairs.offset * c_in * operands.c_out;

  int32_t rows[Tile::kInputLoads];
#pragma unroll
  for (int v = 0; v < Tile::kInputLoads; ++v) {
    const int64_t pair = pairs.begin + (v * Tile::kThreads + threadIdx.x) / Tile::kRowChunks;
    rows[v] = pair < pairs.end ? operands.in[pair] : -1;
  }
  float sum[2][Tile::kWarpChannels / 8][4] = {};
  int64_t next = 0;  // input channel that the next copy starts at
  int load = 0, use = 0;
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s, next += Tile::kStep) {
    if (next < c_in)
      Tile::Load(shared + s * Tile::kStageBytes, operands, rows, weights, channel, next);
    CommitCopies();
  }
  load = kStages - 1;
  for (int64_t depth = 0; depth < c_in; depth += Tile::kStep, next += Tile::kStep) {
    WaitCopies<kStages - 2>();
    __syncthreads();
    if (next < c_in) {
      Tile::Load(shared + load * Tile::kStageBytes, operands, rows, weights, channel, next);
    }
    CommitCopies();
    Tile::Multiply(shared + use * Tile::kStageBytes, c_in - depth, sum);
    load = load + 1 == kStages ? 0 : load + 1;
    use = use + 1 == kStages ? 0 : use + 1;
  }
  Tile::Write(operands, pairs, channel, sum);
#endif
}

template <typename T, int kChannels, bool kVector>
absl::Status LaunchTile(const FgmsSegments& segments, const FgmsOperands& operands,
                        const ExecutionContext& context) {
  using Tile = MmaTile<T, kChannels, kVector>;
  const dim3 grid(static_cast<unsigned>(segments.num_tiles()),
                  static_cast<unsigned>(CeilDiv(operands.c_out, kChannels)));
  VOXCONV_LAUNCH((FgmsMma<T, kChannels, kVector>), grid, Tile::kThreads, Tile::kSharedBytes,
                 context, segments, operands);
  return absl::OkStatus();
}

template <typename T>
absl::Status LaunchType(const FgmsTile& tile, const FgmsSegments& segments,
                        const FgmsOperands& operands, const ExecutionContext& context) {
  constexpr int64_t kChunk = kChunkBytes / sizeof(T);
  const bool vector = operands.c_in % kChunk == 0 && operands.c_out % kChunk == 0 &&
                      Aligned({operands.input, operands.weights}, kChunkBytes);
  VOXCONV_CHECK(tile.pairs == kPairs);
  switch (tile.channels) {
    case 16:
      return vector ? LaunchTile<T, 16, true>(segments, operands, context)
                    : LaunchTile<T, 16, false>(segments, operands, context);
    case 32:
      return vector ? LaunchTile<T, 32, true>(segments, operands, context)
                    : LaunchTile<T, 32, false>(segments, operands, context);
    case 64:
      return vector ? LaunchTile<T, 64, true>(segments, operands, context)
                    : LaunchTile<T, 64, false>(segments, operands, context);
    default:
      VOXCONV_CHECK(tile.channels == 128);
      // Rows that cannot be copied in chunks gain nothing from a wider tile.
      return vector ? LaunchTile<T, 128, true>(segments, operands, context)
                    : LaunchTile<T, 64, false>(segments, operands, context);
  }
}

}  // namespace

absl::Status LaunchFgmsMma(const FgmsTile& tile, const FgmsSegments& segments,
                           const FgmsOperands& operands, const ExecutionContext& context) {
  VOXCONV_CHECK(operands.precision != Precision::kF32);
  return WithStoredType(StorageOf(operands.precision), [&]<typename T>() {
    return LaunchType<T>(tile, segments, operands, context);
  });
}

}  // namespace voxconv
