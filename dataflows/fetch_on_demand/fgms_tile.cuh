// SPDX-License-Identifier: Apache-2.0
// What the FGMS kernels share: they find a tile's pairs and write its results.
#ifndef VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FGMS_TILE_CUH_
#define VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FGMS_TILE_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "voxconv/backends/cuda/last_not_above.cuh"
#include "voxconv/dataflows/fetch_on_demand/fgms_cuda.h"

namespace voxconv {

struct FgmsTilePairs {
  int64_t begin, end;  // pairs [begin, end); begin >= end in a tile of padding
  int64_t offset;      // kernel offset
};

// The pairs of tile `tile`, which has room for kPairs. O(log segments).
template <int kPairs>
__device__ __forceinline__ FgmsTilePairs PairsOfTile(const FgmsSegments& segments, int tile) {
  const int i = LastNotAbove(segments.tile_ptr, segments.count, int32_t{tile});
  FgmsTilePairs pairs;
  pairs.begin = segments.pair_begin[i] + int64_t{tile - segments.tile_ptr[i]} * kPairs;
  pairs.end = min(segments.pair_end[i], pairs.begin + kPairs);
  pairs.offset = segments.offset[i];
  return pairs;
}

// Writes four neighbouring sums to `to`, which is 16-byte aligned.
__device__ __forceinline__ void WriteFour(FgmsWrite write, float* to, float4 value) {
  if (write == FgmsWrite::kAddAtomic) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    atomicAdd(reinterpret_cast<float4*>(to), value);
#else
    atomicAdd(to, value.x);
    atomicAdd(to + 1, value.y);
    atomicAdd(to + 2, value.z);
    atomicAdd(to + 3, value.w);
#endif
    return;
  }
  if (write == FgmsWrite::kAdd) {
    const float4 sum = *reinterpret_cast<const float4*>(to);
    value = {sum.x + value.x, sum.y + value.y, sum.z + value.z, sum.w + value.w};
  }
  *reinterpret_cast<float4*>(to) = value;
}

__device__ __forceinline__ void WriteOne(FgmsWrite write, float* to, float value) {
  if (write == FgmsWrite::kAddAtomic) {
    atomicAdd(to, value);
  } else {
    *to = write == FgmsWrite::kAdd ? *to + value : value;
  }
}

// Writes the sums of four channels, from `channel` on, to a row of the sum. It leaves out channels
// that the row does not have.
__device__ __forceinline__ void WriteToRow(const FgmsOperands& operands, float* row,
                                           int64_t channel, float4 value) {
  if (operands.vector_sum) {
    if (channel < operands.c_out) WriteFour(operands.write, row + channel, value);
    return;
  }
  const float values[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (channel + i < operands.c_out) WriteOne(operands.write, row + channel + i, values[i]);
  }
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FGMS_TILE_CUH_
