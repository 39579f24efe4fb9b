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

// Stores the sums of channels c and c + 1 (where they exist): finished, or as partial sums of
// part `part`.
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
  if (!args.pair_stores) {
    to[0] = Narrow<Element>(Finish<Element>(args, row, c, sum.x));
    if (c + 1 < args.c_out) to[1] = Narrow<Element>(Finish<Element>(args, row, c + 1, sum.y));
    return;
  }
  if (args.scale != nullptr) {
    sum.x *= args.scale[c];
    sum.y *= args.scale[c + 1];
  }
  if (args.shift != nullptr) {
    sum.x += args.shift[c];
    sum.y += args.shift[c + 1];
  }
  using Two = Pack<Element, 2>;
  if (args.residual != nullptr) {
    const Element* from = static_cast<const Element*>(args.residual) + row * args.c_out + c;
    const Two residual = *reinterpret_cast<const Two*>(from);
    sum.x += Widen(residual.v[0]);
    sum.y += Widen(residual.v[1]);
  }
  if (args.relu) sum = {fmaxf(sum.x, 0.0f), fmaxf(sum.y, 0.0f)};
  *reinterpret_cast<Two*>(to) = Two{{Narrow<Element>(sum.x), Narrow<Element>(sum.y)}};
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_KERNEL_ARGS_CUH_
