// SPDX-License-Identifier: Apache-2.0
// The epilogue that the kernels of this folder share. ImplicitGemmArgs are the arguments of every
// kernel.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_KERNEL_ARGS_CUH_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_KERNEL_ARGS_CUH_

#include <cstdint>
#include <cstring>

#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/dataflows/implicit_gemm/implicit_gemm_kernels.h"

namespace voxconv {

// Applies the epilogue to the sum of row `row` and channel `c`.
template <typename Element>
__device__ __forceinline__ float Finish(const ImplicitGemmArgs& args, int64_t row, int c,
                                        float sum) {
  if (args.scale != nullptr) sum *= args.scale[c];
  if (args.shift != nullptr) sum += args.shift[c];
  if (args.residual != nullptr) {
    sum += Widen(static_cast<const Element*>(args.residual)[row * args.c_out + c]);
  }
  return args.relu ? Relu(sum) : sum;
}

// Stores the sum of channel c, unless c is past the end. The sum is finished first, or it is stored
// as a partial sum of part `part`.
template <typename Element>
__device__ __forceinline__ void StoreOne(const ImplicitGemmArgs& args, int part, int64_t row, int c,
                                         float sum) {
  if (c >= args.c_out) return;
  if (args.partial != nullptr) {
    args.partial[(part * args.num_outputs + row) * args.c_out + c] = sum;
  } else {
    static_cast<Element*>(args.output)[row * args.ld_output + c] =
        Narrow<Element>(Finish<Element>(args, row, c, sum));
  }
}

// As StoreOne, for the sums of the channels c and c + 1.
template <typename Element>
__device__ __forceinline__ void StorePair(const ImplicitGemmArgs& args, int part, int64_t row,
                                          int c, float2 sum) {
  if (c >= args.c_out) return;
  if (args.partial != nullptr) {
    float* to = args.partial + (part * args.num_outputs + row) * args.c_out + c;
    to[0] = sum.x;
    if (c + 1 < args.c_out) to[1] = sum.y;
    return;
  }
  Element* to = static_cast<Element*>(args.output) + row * args.ld_output + c;
  const Element first = Narrow<Element>(Finish<Element>(args, row, c, sum.x));
  if (!args.vector_stores) {
    to[0] = first;
    if (c + 1 < args.c_out) to[1] = Narrow<Element>(Finish<Element>(args, row, c + 1, sum.y));
    return;
  }
  using Two = Pack<Element, 2>;
  *reinterpret_cast<Two*>(to) =
      Two{{first, Narrow<Element>(Finish<Element>(args, row, c + 1, sum.y))}};
}

// The value of the lane whose index differs from this lane's by an exclusive or with `across`.
__device__ __forceinline__ float2 FromLane(float2 value, int across) {
  return float2{__shfl_xor_sync(~0u, value.x, across), __shfl_xor_sync(~0u, value.y, across)};
}
__device__ __forceinline__ uint32_t FromLane(uint32_t value, int across) {
  return __shfl_xor_sync(~0u, value, across);
}

// Transposes a 4 x 4 matrix among the four lanes of a quad. tiles[t] is this lane's value of tile
// t. For lane q of the quad, result[j] is lane j's value of tile q.
template <typename T>
__device__ __forceinline__ void TransposeQuad(const T (&tiles)[4], T (&result)[4]) {
  const bool odd = threadIdx.x % 2 != 0, high = threadIdx.x % 4 >= 2;
  // Of the tiles 2 * high and 2 * high + 1: this lane's values, and those of the lane 2 away.
  T kept[2], other[2];
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    kept[t] = high ? tiles[t + 2] : tiles[t];
    other[t] = FromLane(high ? tiles[t] : tiles[t + 2], 2);
  }
  const T mine = odd ? kept[1] : kept[0], across = odd ? other[1] : other[0];
  const T next = FromLane(odd ? kept[0] : kept[1], 1);
  const T far = FromLane(odd ? other[0] : other[1], 1);
  const T near_0 = odd ? next : mine, near_1 = odd ? mine : next;
  const T far_0 = odd ? far : across, far_1 = odd ? across : far;
  result[0] = high ? far_0 : near_0;
  result[1] = high ? far_1 : near_1;
  result[2] = high ? near_0 : far_0;
  result[3] = high ? near_1 : far_1;
}

// The last steps of the epilogue for four pairs of sums. It adds the residual, applies the ReLU and
// narrows. `residual` and `finished` have two elements in a word.
template <typename Element>
__device__ __forceinline__ void FinishWords(const ImplicitGemmArgs& args,
                                            const uint32_t (&residual)[4], float2 (&sums)[4],
                                            uint32_t (&finished)[4]) {
  static_assert(sizeof(Element) == 2);
  using Two = Pack<Element, 2>;
  if (args.residual != nullptr) {
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      Two more;
      memcpy(&more, &residual[t], sizeof(more));
      sums[t] = {sums[t].x + Widen(more.v[0]), sums[t].y + Widen(more.v[1])};
    }
  }
  if (args.relu) {
#pragma unroll
    for (int t = 0; t < 4; ++t) sums[t] = {Relu(sums[t].x), Relu(sums[t].y)};
  }
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const Two two{{Narrow<Element>(sums[t].x), Narrow<Element>(sums[t].y)}};
    memcpy(&finished[t], &two, sizeof(two));
  }
}

// Applies the epilogue to four pairs of sums of one row. Pair t of lane q of a quad has the
// channels channel + 8 t + 2 q and the next one. `residual` and `finished` have two elements in a
// word.
template <typename Element>
__device__ __forceinline__ void FinishPairs(const ImplicitGemmArgs& args, int channel,
                                            const uint32_t (&residual)[4], float2 (&sums)[4],
                                            uint32_t (&finished)[4]) {
  static_assert(sizeof(Element) == 2);
  // Nobody stores channels past the end. For them, any channel in range will do.
  const auto at = [&](int t) {
    return min(channel + t * 8, args.c_out - 8) + static_cast<int>(threadIdx.x % 4) * 2;
  };
  if (args.scale != nullptr) {
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const float2 scale = __ldg(reinterpret_cast<const float2*>(args.scale + at(t)));
      sums[t] = {sums[t].x * scale.x, sums[t].y * scale.y};
    }
  }
  if (args.shift != nullptr) {
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const float2 shift = __ldg(reinterpret_cast<const float2*>(args.shift + at(t)));
      sums[t] = {sums[t].x + shift.x, sums[t].y + shift.y};
    }
  }
  FinishWords<Element>(args, residual, sums, finished);
}

// Finishes and stores eight channels of one row, from `channel` on, in whole vectors.
template <typename Element>
__device__ __forceinline__ void StoreEight(const ImplicitGemmArgs& args, int64_t row, int channel,
                                           const float2 (&pairs)[4]) {
  float value[8] = {pairs[0].x, pairs[0].y, pairs[1].x, pairs[1].y,
                    pairs[2].x, pairs[2].y, pairs[3].x, pairs[3].y};
  if (args.scale != nullptr) {
#pragma unroll
    for (int i = 0; i < 8; ++i) value[i] *= __ldg(args.scale + channel + i);
  }
  if (args.shift != nullptr) {
#pragma unroll
    for (int i = 0; i < 8; ++i) value[i] += __ldg(args.shift + channel + i);
  }
  constexpr int kVector = 16 / sizeof(Element);
  using Vector = Pack<Element, kVector>;
  const int64_t offset = row * args.c_out + channel;  // of the residual
  Element* const to = static_cast<Element*>(args.output) + row * args.ld_output + channel;
#pragma unroll
  for (int v = 0; v < 8 / kVector; ++v) {
    if (args.residual != nullptr) {
      const Vector residual = *reinterpret_cast<const Vector*>(
          static_cast<const Element*>(args.residual) + offset + v * kVector);
#pragma unroll
      for (int i = 0; i < kVector; ++i) value[v * kVector + i] += Widen(residual.v[i]);
    }
    Vector vector;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float x = value[v * kVector + i];
      vector.v[i] = Narrow<Element>(args.relu ? Relu(x) : x);
    }
    *reinterpret_cast<Vector*>(to + v * kVector) = vector;
  }
}

// StoreTile for 16-bit elements in whole vectors. Each lane finishes its own sums, so that 16-bit
// values travel between lanes instead of floats. The residual of the next four fragments is loaded
// ahead. The compiler would not do this itself: the output may be the residual's memory, so it
// would store first.
template <typename Element, bool kResidual, int kRows, int kFragments, typename Sum>
__device__ __forceinline__ void StoreHalves(const ImplicitGemmArgs& args,
                                            const int32_t (&rows)[kRows], int channel,
                                            const Sum& sum) {
  const int q = threadIdx.x % 4;
  const auto first_of = [&](int n) { return channel + (n + q) * 8; };
  uint4 ahead[kRows] = {};
  const auto load = [&](int n) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (rows[r] < 0 || first_of(n) >= args.c_out) continue;
      ahead[r] = *reinterpret_cast<const uint4*>(static_cast<const Element*>(args.residual) +
                                                 int64_t{rows[r]} * args.c_out + first_of(n));
    }
  };
  if constexpr (kResidual) load(0);
#pragma unroll
  for (int n = 0; n < kFragments; n += 4) {
    if (channel + n * 8 >= args.c_out) return;
    uint4 loaded[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) loaded[r] = ahead[r];
    if constexpr (kResidual) {
      if (n + 4 < kFragments) load(n + 4);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      uint32_t residual[4] = {};
      if constexpr (kResidual) {
        const uint32_t words[4] = {loaded[r].x, loaded[r].y, loaded[r].z, loaded[r].w};
        TransposeQuad(words, residual);
      }
      float2 sums[4] = {sum(r, n), sum(r, n + 1), sum(r, n + 2), sum(r, n + 3)};
      uint32_t tiles[4], pairs[4];
      FinishPairs<Element>(args, channel + n * 8, residual, sums, tiles);
      TransposeQuad(tiles, pairs);
      if (rows[r] < 0 || first_of(n) >= args.c_out) continue;
      *reinterpret_cast<uint4*>(static_cast<Element*>(args.output) +
                                int64_t{rows[r]} * args.ld_output +
                                first_of(n)) = {pairs[0], pairs[1], pairs[2], pairs[3]};
    }
  }
}

// Stores a thread's part of the m16n8 fragments of a tile. rows[r] are its output rows (-1 = none),
// the same for the four lanes of a quad. sum(r, n) is the pair of sums of row r in the n-th
// fragment. For lane q of the quad it has the channels `channel` + 8 n + 2 q and the next one. All
// lanes of a warp must call this function.
template <typename Element, int kRows, int kFragments, typename Sum>
__device__ __forceinline__ void StoreTile(const ImplicitGemmArgs& args, int part,
                                          const int32_t (&rows)[kRows], int channel,
                                          const Sum& sum) {
  const int q = threadIdx.x % 4;
  if (kFragments % 4 != 0 || !args.vector_stores || args.partial != nullptr) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (rows[r] < 0) continue;
#pragma unroll
      for (int n = 0; n < kFragments; ++n) {
        StorePair<Element>(args, part, rows[r], channel + n * 8 + q * 2, sum(r, n));
      }
    }
    return;
  }
  if constexpr (kFragments % 4 == 0 && sizeof(Element) == 2) {
    if (args.residual == nullptr) {
      StoreHalves<Element, false, kRows, kFragments>(args, rows, channel, sum);
    } else {
      StoreHalves<Element, true, kRows, kFragments>(args, rows, channel, sum);
    }
  } else if constexpr (kFragments % 4 == 0) {
#pragma unroll
    for (int n = 0; n < kFragments; n += 4) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float2 tiles[4] = {sum(r, n), sum(r, n + 1), sum(r, n + 2), sum(r, n + 3)};
        float2 pairs[4];
        TransposeQuad(tiles, pairs);
        const int first = channel + (n + q) * 8;
        if (rows[r] >= 0 && first < args.c_out) StoreEight<Element>(args, rows[r], first, pairs);
      }
    }
  }
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_KERNEL_ARGS_CUH_
