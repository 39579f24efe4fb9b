// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/backends/cuda/weight_gradient_mma.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/core/version.h"

namespace voxconv {
namespace {

constexpr int64_t kSumBytes = int64_t{64} << 20;
constexpr int64_t kLeastRangePairs = 256;
// Steps of a launch, so that sums of their numbers fit 32 bits. An offset alone has fewer.
constexpr int64_t kMaxSteps = int64_t{1} << 30;
constexpr int kThreads = 128;
constexpr int kThreadsAtOnce = 2048;  // of a multiprocessor, on most devices
// Most threads that add the partial sums of one element. With P of them, each takes every P-th.
constexpr int kMostParts = 8;

int64_t SlotBytes(int64_t c_in, int64_t c_out) {
  return c_in * c_out * static_cast<int64_t>(sizeof(float));
}

// to[k * size + i] = the sum of element i of the slots of offset k. blockDim.x columns of V
// elements each, blockDim.y parts.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    AddSlots(const __grid_constant__ StepRanges ranges, const float* sums, int64_t size, T* to) {
  constexpr int kAhead = 4;  // loads in flight
  __shared__ Pack<float, V> totals[kThreads];
  LetNextKernelIn();
  const int k = blockIdx.y, columns = blockDim.x, parts = blockDim.y;
  const int column = threadIdx.x, part = threadIdx.y;
  const int64_t i = (int64_t{blockIdx.x} * columns + column) * V;
  const int first = ranges.step_ptr[k], last = ranges.step_ptr[k + 1] - 1;
  const int begin = first / ranges.range_steps + k;
  const int end = last < first ? begin : last / ranges.range_steps + k + 1;
  AwaitEarlierKernels();
  Pack<float, V> total = {};
  for (int slot = begin + part; i < size && slot < end; slot += kAhead * parts) {
    Pack<float, V> term[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int64_t at = slot + a * parts;
      if (at < end) term[a] = *reinterpret_cast<const Pack<float, V>*>(sums + at * size + i);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (slot + a * parts >= end) continue;
#pragma unroll
      for (int v = 0; v < V; ++v) total.v[v] += term[a].v[v];
    }
  }
  if (parts > 1) {
    totals[part * columns + column] = total;
    __syncthreads();
  }
  if (part > 0 || i >= size) return;
  for (int p = 1; p < parts; ++p) {
#pragma unroll
    for (int v = 0; v < V; ++v) total.v[v] += totals[p * columns + column].v[v];
  }
  Pack<T, V> result;
#pragma unroll
  for (int v = 0; v < V; ++v) result.v[v] = Narrow<T>(total.v[v]);
  *reinterpret_cast<Pack<T, V>*>(to + k * size + i) = result;
}

// Queues AddSlots with as many parts as the GPU has room for at once.
absl::Status LaunchAddSlots(const StepRanges& ranges, const float* sums, int64_t size,
                            const TensorView& gradient, int first_offset,
                            const ExecutionContext& context) {
  return WithStoredType(gradient.dtype, [&]<typename T>() -> absl::Status {
    T* const to = static_cast<T*>(gradient.data) + first_offset * size;
    const auto launch = [&](auto vector) -> absl::Status {
      constexpr int kVector = decltype(vector)::value;
      const int64_t packs = CeilDiv(size, kVector);
      const int64_t room = int64_t{AsCuda(context).num_multiprocessors()} * kThreadsAtOnce;
      int parts = kMostParts;
      while (parts > 1 && packs * ranges.num_offsets * parts > room) parts /= 2;
      const dim3 block(kThreads / parts, parts);
      const dim3 grid(GridFor(packs, kThreads / parts).x, ranges.num_offsets);
      VOXCONV_LAUNCH_EARLY((AddSlots<T, kVector>), grid, block, 0, context, ranges, sums, size, to);
      return absl::OkStatus();
    };
    if (size % 4 == 0 && Aligned({to, sums}, 16)) return launch(std::integral_constant<int, 4>());
    return launch(std::integral_constant<int, 1>());
  });
}

std::unique_ptr<const RangeSums> ChooseKernel(const ConstTensorView& x, const ConstTensorView& dy,
                                              Precision precision, CudaBackend& cuda) {
  const bool vector = x.channels * SizeOf(x.dtype) % 16 == 0 &&
                      dy.channels * SizeOf(dy.dtype) % 16 == 0 && Aligned({x.data, dy.data}, 16);
  const bool warpgroups = VOXCONV_HAVE_SM90A != 0 && cuda.compute_capability() == 90;
  switch (precision) {
    case Precision::kF16:
      return RangeSumsF16(x.channels, dy.channels, vector, warpgroups);
    case Precision::kBF16:
      return RangeSumsBf16(x.channels, dy.channels, vector, warpgroups);
    case Precision::kTf32:
      return RangeSumsTf32(x.channels, dy.channels, vector);
    default:
      return RangeSumsF32(x.channels, dy.channels, vector);
  }
}

}  // namespace

bool HasMmaWeightGradient(int64_t c_in, int64_t c_out, const ExecutionContext& context) {
  // Two slots must fit, and products of channels must not overflow.
  return AsCuda(context).compute_capability() >= 80 && c_in <= kSumBytes && c_out <= kSumBytes &&
         2 * SlotBytes(c_in, c_out) <= kSumBytes;
}

absl::Status MmaWeightGradient(const KernelMap& map, const ConstTensorView& x,
                               const ConstTensorView& dy, Precision precision,
                               const TensorView& gradient, const ExecutionContext& context) {
  const int64_t size = x.channels * dy.channels;
  const std::unique_ptr<const RangeSums> kernel = ChooseKernel(x, dy, precision, AsCuda(context));
  VOXCONV_ASSIGN_OR_RETURN(const int64_t ranges_at_once, kernel->NumRanges(context));
  const std::vector<int64_t>& ptr = map.offset_ptr();
  const auto steps = [&](int k) { return CeilDiv(ptr[k + 1] - ptr[k], kernel->step_pairs()); };
  int64_t all_steps = 0;
  for (int k = 0; k < map.num_offsets(); ++k) all_steps += steps(k);
  // A group of offsets has at most `most_slots` slots. An offset alone never has more.
  const int64_t most_slots = kSumBytes / SlotBytes(x.channels, dy.channels);
  const int64_t range_steps =
      std::max({CeilDiv(kLeastRangePairs, kernel->step_pairs()), CeilDiv(all_steps, ranges_at_once),
                CeilDiv(all_steps, most_slots)});
  RangeOperands operands{.in = map.pairs().in.data(),
                         .out = map.pairs().out.data(),
                         .x = x.data,
                         .dy = dy.data,
                         .c_in = x.channels,
                         .c_out = dy.channels};
  Array<float> sums;
  for (int first = 0, last; first < map.num_offsets(); first = last) {
    StepRanges ranges{.range_steps = static_cast<int32_t>(range_steps)};
    ranges.pair_ptr[0] = ptr[first];
    ranges.step_ptr[0] = 0;
    for (last = first; last < map.num_offsets() && last - first < StepRanges::kMaxOffsets; ++last) {
      const int64_t end = ranges.step_ptr[last - first] + steps(last);
      const bool fits = CeilDiv(end, range_steps) + last - first <= most_slots && end <= kMaxSteps;
      if (last > first && !fits) break;
      ++ranges.num_offsets;
      ranges.pair_ptr[ranges.num_offsets] = ptr[last + 1];
      ranges.step_ptr[ranges.num_offsets] = static_cast<int32_t>(end);
    }
    if (const int64_t needed = ranges.num_slots() * size; needed > sums.size()) {
      sums = Array<float>();  // returned first: both together may be past the limit
      VOXCONV_ASSIGN_OR_RETURN(sums, AllocateArray<float>(needed, context));
    }
    operands.sums = sums.data();
    VOXCONV_RETURN_IF_ERROR(kernel->Launch(ranges, operands, context));
    VOXCONV_RETURN_IF_ERROR(LaunchAddSlots(ranges, sums.data(), size, gradient, first, context));
  }
  return absl::OkStatus();
}

}  // namespace voxconv
