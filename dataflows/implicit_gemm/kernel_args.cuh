// What every kernel of this folder is given, and the epilogue they share.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_KERNEL_ARGS_CUH_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_KERNEL_ARGS_CUH_

#include <cstdint>

#include "backends/cuda/device_tensor.h"
#include "dataflows/implicit_gemm/implicit_gemm_kernels.h"

namespace voxconv {

// The value stored for one sum of row `row`, channel `c`.
template <typename Element>
__device__ __forceinline__ float Finish(const ImplicitGemmArgs& args, int64_t row, int c,
                                        float sum) {
  if (args.scale != nullptr) sum *= args.scale[c];
  if (args.shift != nullptr) sum += args.shift[c];
  if (args.residual != nullptr) {
    sum += Widen(static_cast<const Element*>(args.residual)[row * args.c_out + c]);
  }
  return args.relu ? fmaxf(sum, 0.0f) : sum;
}

// Stores the sums of channels c and c + 1 (where they exist): finished, or as partial sums of part
// `part`.
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
  Element* to = static_cast<Element*>(args.output) + row * args.c_out + c;
  to[0] = Narrow<Element>(Finish<Element>(args, row, c, sum.x));
  if (c + 1 < args.c_out) to[1] = Narrow<Element>(Finish<Element>(args, row, c + 1, sum.y));
}

// A thread's share of a tile: rows[r] (-1: none), in each the pairs of channels c, c + 8, ...;
// sum(r, n) gives the n-th pair of row r. What all have in common is asked and loaded once.
template <typename Element, int kRows, int kPairs, typename Sum>
__device__ __forceinline__ void StoreTile(const ImplicitGemmArgs& args, int part,
                                          const int32_t (&rows)[kRows], int c, const Sum& sum) {
  using Two = Pack<Element, 2>;
  if (!args.pair_stores || args.partial != nullptr) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (rows[r] < 0) continue;
#pragma unroll
      for (int n = 0; n < kPairs; ++n) {
        StorePair<Element>(args, part, rows[r], c + n * 8, sum(r, n));
      }
    }
    return;
  }
  Element* output = static_cast<Element*>(args.output) + c;
  const Element* residual = static_cast<const Element*>(args.residual);
  if (args.scale == nullptr && args.shift == nullptr && residual == nullptr && !args.relu) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (rows[r] < 0) continue;
      Element* to = output + int64_t{rows[r]} * args.c_out;
#pragma unroll
      for (int n = 0; n < kPairs; ++n) {
        if (c + n * 8 >= args.c_out) break;
        const float2 value = sum(r, n);
        *reinterpret_cast<Two*>(to + n * 8) =
            Two{{Narrow<Element>(value.x), Narrow<Element>(value.y)}};
      }
    }
    return;
  }
#pragma unroll
  for (int n = 0; n < kPairs; ++n) {
    const int at = c + n * 8;
    if (at >= args.c_out) break;
    float2 scale = {1.0f, 1.0f}, shift = {0.0f, 0.0f};
    if (args.scale != nullptr) scale = {args.scale[at], args.scale[at + 1]};
    if (args.shift != nullptr) shift = {args.shift[at], args.shift[at + 1]};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (rows[r] < 0) continue;
      const int64_t offset = int64_t{rows[r]} * args.c_out + n * 8;
      const float2 value = sum(r, n);
      float x = value.x * scale.x + shift.x, y = value.y * scale.y + shift.y;
      if (residual != nullptr) {
        const Two two = *reinterpret_cast<const Two*>(residual + c + offset);
        x += Widen(two.v[0]);
        y += Widen(two.v[1]);
      }
      if (args.relu) {
        x = fmaxf(x, 0.0f);
        y = fmaxf(y, 0.0f);
      }
      *reinterpret_cast<Two*>(output + offset) = Two{{Narrow<Element>(x), Narrow<Element>(y)}};
    }
  }
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_KERNEL_ARGS_CUH_
