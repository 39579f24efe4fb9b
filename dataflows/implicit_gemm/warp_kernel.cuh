// SPDX-License-Identifier: Apache-2.0
// Output-stationary implicit GEMM on tensor cores, a warp at a time, for few channels.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARP_KERNEL_CUH_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARP_KERNEL_CUH_

#include <algorithm>
#include <cstdint>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/dataflows/implicit_gemm/warp_tile.cuh"

namespace voxconv {

// Grid: (blocks, channel tiles, splits). Warps take groups of 16 rows in turn. The groups with the
// most offsets (the last in mask order) come first. Every second turn goes through the warps
// backwards, so that the warp with the most offsets in one turn has the fewest in the next. If rows
// are as given, every turn goes forwards, because neighbours in space then share cache lines.
template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerMultiprocessor)
    ImplicitGemmWarp(const __grid_constant__ ImplicitGemmArgs args) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(Config::kAlignment) char shared[];
  const int channel = static_cast<int>(blockIdx.y) * Config::kChannels;
  const int split = static_cast<int>(blockIdx.z);
  const int own = WarpTile<Config>::OwnRow();
  // The number of rows fits in 32 bits, and so does that of groups.
  const int groups = static_cast<int>((args.num_outputs + 15) / 16);
  const int warps = static_cast<int>(gridDim.x * (blockDim.x / 32));
  // The shuffle tells the compiler that the value is the same for all lanes.
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0);
  // Neighbouring groups go to different blocks, so that the heavy groups spread over all blocks.
  const int place = warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  int group = groups - 1 - place;
  // The distance to this warp's group of the next turn.
  int step = args.row_order == nullptr ? warps : 2 * (warps - place) - 1;
  const auto load = [&](int at, int32_t& row, uint32_t& mask) {
    const int64_t position = int64_t{at} * 16 + own;
    row = at < 0 ? -1 : OutputRow(args, split, position);
    mask = Config::kQuads || at < 0 ? 0 : RowMask(args, split, row, position, 0);
  };
  int32_t row;
  uint32_t mask;
  LetNextKernelIn();
  if (!args.settled) AwaitEarlierKernels();
  load(group, row, mask);
  WarpTile<Config>::LoadWeights(args, channel, split, shared);
  AwaitEarlierKernels();
  WarpTile<Config> tile(args, shared, channel, split);
  while (group >= 0) {
    int32_t next_row;
    uint32_t next_mask;
    load(group - step, next_row, next_mask);
    tile.Run(row, int64_t{group} * 16 + own, mask);
    row = next_row;
    mask = next_mask;
    group -= step;
    step = 2 * warps - step;
  }
#endif
}

template <typename Config>
absl::Status LaunchWarp(const ImplicitGemmArgs& args, const ExecutionContext& context) {
  int most = 0;
  for (int s = 0; s < args.splits; ++s) {
    most = std::max(most, args.split_ptr[s + 1] - args.split_ptr[s]);
  }
  const int64_t shared = Config::SharedBytes(most);
  VOXCONV_ASSIGN_OR_RETURN(const int resident,
                           ResidentBlocks(reinterpret_cast<const void*>(&ImplicitGemmWarp<Config>),
                                          Config::kThreads, static_cast<size_t>(shared), context));
  const int64_t blocks = int64_t{std::max(resident, 1)} * AsCuda(context).num_multiprocessors();
  const int64_t groups = CeilDiv(args.num_outputs, 16);
  const dim3 grid(static_cast<unsigned>(std::min(blocks, CeilDiv(groups, Config::kThreads / 32))),
                  static_cast<unsigned>(CeilDiv(args.c_out, Config::kChannels)),
                  static_cast<unsigned>(args.splits));
  VOXCONV_LAUNCH_EARLY(ImplicitGemmWarp<Config>, grid, Config::kThreads, shared, context, args);
  return absl::OkStatus();
}

template <typename Element, int kVectorBytes, int kChunks, bool kQuads>
absl::Status LaunchWarpRows(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                            const ExecutionContext& context) {
  switch (tile.channels) {
    case 16:
      return LaunchWarp<WarpConfig<Element, kVectorBytes, kChunks, 16, kQuads>>(args, context);
    case 32:
      return LaunchWarp<WarpConfig<Element, kVectorBytes, kChunks, 32, kQuads>>(args, context);
    default:
      VOXCONV_CHECK(tile.channels == 64);
      return LaunchWarp<WarpConfig<Element, kVectorBytes, kChunks, 64, kQuads>>(args, context);
  }
}

// Launches the instance of an element type for the bytes of an input row.
template <typename Element>
absl::Status LaunchWarpOf(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                          const ExecutionContext& context) {
  switch (args.c_in * static_cast<int>(sizeof(Element))) {
    case 8:
      return LaunchWarpRows<Element, 8, 1, true>(tile, args, context);
    case 16:
      return LaunchWarpRows<Element, 16, 1, true>(tile, args, context);
    case 32:
      return LaunchWarpRows<Element, 8, 1, false>(tile, args, context);
    case 64:
      return LaunchWarpRows<Element, 16, 1, false>(tile, args, context);
    default:
      VOXCONV_CHECK(args.c_in * sizeof(Element) == 128);
      return LaunchWarpRows<Element, 16, 2, false>(tile, args, context);
  }
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARP_KERNEL_CUH_
