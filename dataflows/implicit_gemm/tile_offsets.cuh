// Which kernel offsets a block's rows have, and where the rows' inputs are: what the block and the
// fma kernel do before they multiply.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_TILE_OFFSETS_CUH_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_TILE_OFFSETS_CUH_

#include <cstdint>

#include "dataflows/implicit_gemm/kernel_args.cuh"

namespace voxconv {

// Where position `position` of a split's row order is, -1 past the end.
__device__ __forceinline__ int32_t OutputRow(const ImplicitGemmArgs& args, int split,
                                             int64_t position) {
  if (position >= args.num_outputs) return -1;
  if (args.row_order == nullptr) return static_cast<int32_t>(position);
  return args.row_order[split * args.num_outputs + position];
}

// Word `word` of a row's mask; no offsets without a row.
__device__ __forceinline__ uint32_t RowMask(const ImplicitGemmArgs& args, int split, int32_t row,
                                            int word) {
  if (row < 0) return 0;
  return args.masks[(split * args.num_outputs + row) * args.words + word];
}

__device__ __forceinline__ int SplitWords(const ImplicitGemmArgs& args, int split) {
  return (args.split_ptr[split + 1] - args.split_ptr[split] + 31) / 32;
}

// In shared memory, for a block of kThreads threads and kRows rows in groups of 16, the M of one
// mma. Offsets are named by their bit in the current mask word.
template <int kRows, int kThreads>
struct TileOffsets {
  static constexpr int kGroups = kRows / 16;
  static_assert(kRows % 32 == 0 && kThreads % 32 == 0 && kRows <= kThreads * 2);

  // Input row of the tile's row i under bit j, -1 = none. Filled a row at a time, which the odd
  // length keeps free of bank conflicts.
  int32_t in[32][kRows + 1];
  int32_t rows[kRows];           // output rows, -1 past the end
  int32_t list[32];              // bits that any row has, ascending
  uint32_t group_mask[kGroups];  // bits that any row of the group has

  __device__ void LoadRows(const ImplicitGemmArgs& args, int split, int64_t first_row) {
    for (int i = threadIdx.x; i < kRows; i += kThreads) {
      rows[i] = OutputRow(args, split, first_row + i);
    }
    __syncthreads();
  }

  // Fills in everything for mask word `word`; returns the number of bits in `list`. Callers have
  // finished with the word before.
  __device__ int LoadWord(const ImplicitGemmArgs& args, int split, int word) {
    const int lane = threadIdx.x % 32;
    for (int i = threadIdx.x; i < kRows; i += kThreads) {
      uint32_t mask = RowMask(args, split, rows[i], word);
#pragma unroll
      for (int step = 1; step < 16; step *= 2) mask |= __shfl_xor_sync(~0u, mask, step);
      if (lane % 16 == 0) group_mask[i / 16] = mask;
    }
    __syncthreads();
    uint32_t any = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) any |= group_mask[g];
    if (threadIdx.x < 32 && (any >> lane & 1) != 0) {
      list[__popc(any & ((1u << lane) - 1))] = lane;
    }
    LoadInputs(args, args.split_ptr[split] + word * 32 + lane, (any >> lane & 1) != 0);
    __syncthreads();
    return __popc(any);
  }

  // Lanes run along the offsets of a row, which lie side by side in the table. All loads of a warp
  // are under way at once.
  __device__ void LoadInputs(const ImplicitGemmArgs& args, int64_t offset, bool wanted) {
    constexpr int kWarps = kThreads / 32, kLoads = kRows / kWarps;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int32_t loaded[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      const int32_t row = rows[warp + j * kWarps];
      loaded[j] = wanted && row >= 0 ? args.table[int64_t{row} * args.num_offsets + offset] : -1;
    }
#pragma unroll
    for (int j = 0; j < kLoads; ++j) in[lane][warp + j * kWarps] = loaded[j];
  }
};

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_TILE_OFFSETS_CUH_
