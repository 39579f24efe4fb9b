// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/backends/cuda/narrow_linear.h"
#include "voxconv/backends/cuda/tensor_core.cuh"

namespace voxconv {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kRows = 16;     // of a warp's tile
constexpr int kChunk = 32;    // input channels of two products
constexpr int kVector = 8;    // elements of 16 bytes
constexpr int kMaxTiles = 8;  // of eight output channels

// A product sums over its channels in any order, as long as rows and weights agree on it: here lane
// q of four has channels 8 q .. 8 q + 7 of a chunk, one vector of each of its rows, the first four
// for one product and the others for the next.
template <typename Element>
__device__ void StageWeights(const Element* weights, int c_in, int c_out, int tiles,
                             uint4* staged) {
  const int chunks = (c_in + kChunk - 1) / kChunk;
  for (int i = threadIdx.x; i < chunks * tiles * 32; i += kThreads) {
    const int lane = i % 32, tile = i / 32 % tiles, chunk = i / 32 / tiles;
    const int channel = tile * 8 + lane / 4, first = chunk * kChunk + lane % 4 * kVector;
    Pack<Element, kVector> vector;
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const bool there = first + j < c_in && channel < c_out;
      vector.v[j] = there ? weights[int64_t{first + j} * c_out + channel] : Narrow<Element>(0.0f);
    }
    staged[i] = *reinterpret_cast<const uint4*>(&vector);
  }
}

// Writes a tile's rows, which lie one behind the other, in words.
template <typename Element>
__device__ void WriteRows(const Element* staged, int rows, int c_out, Element* to) {
  const int lane = threadIdx.x % 32, elements = rows * c_out;
  const auto* from_words = reinterpret_cast<const uint32_t*>(staged);
  auto* to_words = reinterpret_cast<uint32_t*>(to);
  for (int i = lane; i < elements / 2; i += 32) to_words[i] = from_words[i];
  if (elements % 2 != 0 && lane == 0) to[elements - 1] = staged[elements - 1];
}

// Shared memory: the weights by lane, then kRows rows of output for each warp.
template <typename Element, int kTiles>
__global__ void __launch_bounds__(kThreads)
    NarrowLinearKernel(const Element* x, const Element* weights, const float* bias,
                       int64_t num_rows, int c_in, int c_out, Element* y) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  extern __shared__ uint4 shared[];
  const int chunks = (c_in + kChunk - 1) / kChunk;
  OverlapLaunches();
  StageWeights(weights, c_in, c_out, kTiles, shared);
  __syncthreads();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
  Element* const rows_out =
      reinterpret_cast<Element*>(shared + chunks * kTiles * 32) + warp * kRows * c_out;
  const int64_t stride = int64_t{gridDim.x} * kWarps * kRows;
  for (int64_t first = (int64_t{blockIdx.x} * kWarps + warp) * kRows; first < num_rows;
       first += stride) {
    float sums[kTiles][4] = {};
    const int rows = static_cast<int>(min(num_rows - first, int64_t{kRows}));
    const Element* const low = x + (first + g) * c_in;
    const Element* const high = low + int64_t{8} * c_in;
#pragma unroll 4
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int channel = chunk * kChunk + q * kVector;
      uint4 a = {}, b = {};
      if (channel < c_in && g < rows) a = __ldg(reinterpret_cast<const uint4*>(low + channel));
      if (channel < c_in && g + 8 < rows) b = __ldg(reinterpret_cast<const uint4*>(high + channel));
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4 w = shared[(chunk * kTiles + tile) * 32 + lane];
        Mma<Element>(sums[tile], {a.x, b.x, a.y, b.y}, w.x, w.y);
        Mma<Element>(sums[tile], {a.z, b.z, a.w, b.w}, w.z, w.w);
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int channel = tile * 8 + q * 2 + i % 2, row = g + i / 2 * 8;
        if (channel >= c_out) continue;
        const float added = bias == nullptr ? 0.0f : __ldg(bias + channel);
        rows_out[row * c_out + channel] = Narrow<Element>(sums[tile][i] + added);
      }
    }
    __syncwarp();
    WriteRows(rows_out, rows, c_out, y + first * c_out);
    __syncwarp();
  }
#endif
}

// Tiles of the kernel that is launched: a power of two.
int64_t NumTiles(int64_t c_out) {
  int64_t tiles = 1;
  while (tiles * 8 < c_out) tiles *= 2;
  return tiles;
}

int64_t SharedBytes(int64_t c_in, int64_t c_out) {
  return CeilDiv(c_in, kChunk) * NumTiles(c_out) * 32 * static_cast<int64_t>(sizeof(uint4)) +
         int64_t{kWarps} * kRows * c_out * static_cast<int64_t>(sizeof(__half));
}

template <typename Element, int kTiles>
absl::Status Launch(const ConstTensorView& x, const ConstTensorView& weights, const float* bias,
                    const TensorView& y, const ExecutionContext& context) {
  if constexpr (kTiles < kMaxTiles) {
    if (weights.channels > kTiles * 8) {
      return Launch<Element, kTiles * 2>(x, weights, bias, y, context);
    }
  }
  const auto c_in = static_cast<int>(x.channels), c_out = static_cast<int>(weights.channels);
  const int64_t tiles = CeilDiv(x.rows, int64_t{kWarps} * kRows);
  const int64_t most = int64_t{16} * AsCuda(context).num_multiprocessors();
  VOXCONV_LAUNCH_EARLY((NarrowLinearKernel<Element, kTiles>),
                       dim3(static_cast<unsigned>(std::min(tiles, most))), kThreads,
                       SharedBytes(c_in, c_out), context, static_cast<const Element*>(x.data),
                       static_cast<const Element*>(weights.data), bias, x.rows, c_in, c_out,
                       static_cast<Element*>(y.data));
  return absl::OkStatus();
}

}  // namespace

bool TakesNarrowLinear(const ConstTensorView& x, const ConstTensorView& weights,
                       const TensorView& y, const ExecutionContext& context) {
  constexpr int64_t kMaxShared = 48 << 10;  // what every device gives without being asked
  return (x.dtype == DType::kF16 || x.dtype == DType::kBF16) && weights.channels <= kMaxTiles * 8 &&
         x.channels % kVector == 0 && SharedBytes(x.channels, weights.channels) <= kMaxShared &&
         Aligned({x.data}, 16) && Aligned({y.data}, 4) &&
         AsCuda(context).compute_capability() >= 80;
}

absl::Status NarrowLinear(const ConstTensorView& x, const ConstTensorView& weights,
                          const float* bias, const TensorView& y, const ExecutionContext& context) {
  if (x.rows == 0 || weights.channels == 0) return absl::OkStatus();
  return x.dtype == DType::kF16 ? Launch<__half, 1>(x, weights, bias, y, context)
                                : Launch<__nv_bfloat16, 1>(x, weights, bias, y, context);
}

}  // namespace voxconv
