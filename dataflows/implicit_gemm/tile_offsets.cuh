// SPDX-License-Identifier: Apache-2.0
// The kernel offsets that rows have, and the rows' inputs. Kernels look these up before they
// multiply.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_TILE_OFFSETS_CUH_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_TILE_OFFSETS_CUH_

#include <cstdint>

#include "voxconv/backends/cuda/tensor_core.cuh"
#include "voxconv/dataflows/implicit_gemm/kernel_args.cuh"

namespace voxconv {

// The output row at `position` of a split's row order; -1 past the end.
__device__ __forceinline__ int32_t OutputRow(const ImplicitGemmArgs& args, int split,
                                             int64_t position) {
  if (position >= args.num_outputs) return -1;
  if (args.row_order == nullptr) return static_cast<int32_t>(position);
  return args.row_order[split * args.num_outputs + position];
}

// Word `word` of the mask of the row at `position`; 0 past the end.
__device__ __forceinline__ uint32_t RowMask(const ImplicitGemmArgs& args, int split, int32_t row,
                                            int64_t position, int word) {
  if (args.ordered ? position >= args.num_outputs : row < 0) return 0;
  const int64_t at = args.ordered ? position : row;
  return args.masks[(split * args.num_outputs + at) * args.words + word];
}

// The table entries of the row at `position`. Its input under offset k is at
// [k * EntryStride(args)].
__device__ __forceinline__ const int32_t* EntriesOf(const ImplicitGemmArgs& args, int32_t row,
                                                    int64_t position) {
  if (args.ordered) return args.table + min(position, args.num_outputs - 1);
  return args.table + int64_t{max(row, 0)} * args.num_offsets;
}
__device__ __forceinline__ int64_t EntryStride(const ImplicitGemmArgs& args) {
  return args.ordered ? args.num_outputs : 1;
}

// Keeps a base address of an inner loop in one pair of registers. Otherwise the compiler takes the
// base apart, and adds its parts again for every row. The base is in global memory. It may be null
// if nothing is read.
__device__ __forceinline__ const char* KeepWhole(const void* base) {
  const char* whole = static_cast<const char*>(base);
  asm("" : "+l"(whole));
  __builtin_assume(__isGlobal(whole));
  return whole;
}
// base + row * row_bytes, with a product of 64 bits. This is one instruction for a base of
// KeepWhole. Each factor must fit in 32 bits.
__device__ __forceinline__ const char* RowAddress(const char* base, uint32_t row,
                                                  uint32_t row_bytes) {
  uint64_t offset;
  asm("mul.wide.u32 %0, %1, %2;\n" : "=l"(offset) : "r"(row), "r"(row_bytes));
  return base + offset;
}

__device__ __forceinline__ int SplitWords(const ImplicitGemmArgs& args, int split) {
  return (args.split_ptr[split + 1] - args.split_ptr[split] + 31) / 32;
}

// The offsets and inputs of a tile, in shared memory. The block has kThreads threads. The kRows
// rows are in groups of 16, the M of one mma. An offset's name is its bit in the current mask word.
// If kAsync is set and the table is ordered, asynchronous copies bring `rows`. Callers must wait
// for all their copies before they read `rows`.
template <int kRows, int kThreads, bool kAsync>
struct TileOffsets {
  static constexpr int kGroups = kRows / 16;
  static_assert(kRows % 32 == 0 && kThreads % 32 == 0 && kRows <= kThreads * 2);

  // [j][i]: the input row of the tile's row i under bit j, -1 = none. The odd length avoids bank
  // conflicts when a warp writes all bits of one row.
  int32_t in[32][kRows + 1];
  int32_t rows[kRows];           // output rows, -1 past the end
  int32_t list[32];              // bits that any row has, ascending
  uint32_t group_mask[kGroups];  // bits that any row of the group has

  int64_t first;  // position of rows[0]

  __device__ void LoadRows(const ImplicitGemmArgs& args, int split, int64_t first_row) {
    if (threadIdx.x == 0) first = first_row;
    for (int i = threadIdx.x; i < kRows; i += kThreads) {
      const int64_t position = first_row + i;
      if (kAsync && args.ordered && position < args.num_outputs) {
        CopyAsync4(SharedAddress(rows + i), args.row_order + split * args.num_outputs + position);
      } else {
        rows[i] = OutputRow(args, split, position);
      }
    }
    __syncthreads();
  }

  // Fills all members for mask word `word` and returns the number of bits in `list`. All threads of
  // the block must call this function, and must have finished with the word before.
  __device__ int LoadWord(const ImplicitGemmArgs& args, int split, int word) {
    const int lane = threadIdx.x % 32;
    for (int i = threadIdx.x; i < kRows; i += kThreads) {
      // The copies of `rows` may not have finished. An ordered table does not need them here.
      const int32_t row = args.ordered ? -1 : rows[i];
      uint32_t mask = RowMask(args, split, row, first + i, word);
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
    const int first_offset = args.split_ptr[split] + word * 32;
    if (args.ordered) {
      __syncthreads();
      LoadColumns(args, first_offset, __popc(any));
    } else {
      LoadEntries(args, first_offset + lane, (any >> lane & 1) != 0);
    }
    __syncthreads();
    return __popc(any);
  }

  // Fills `in` from a table that is not ordered. The lanes of a warp read neighbouring offsets of
  // one row, which are neighbours in the table. A warp has all its loads in flight at once.
  __device__ void LoadEntries(const ImplicitGemmArgs& args, int64_t offset, bool wanted) {
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

  // Fills `in` from an ordered table. Neighbouring threads read neighbouring rows, one listed
  // offset after the other.
  __device__ void LoadColumns(const ImplicitGemmArgs& args, int first_offset, int count) {
    constexpr int kColumns = kThreads < kRows ? 1 : kThreads / kRows;  // at a time
    constexpr int kAhead = 4;
    const int column = kColumns == 1 ? 0 : threadIdx.x / kRows;
    for (int i = threadIdx.x % kRows; i < kRows; i += kThreads) {
      const bool valid = first + i < args.num_outputs;
      const int32_t* entries = args.table + first_offset * args.num_outputs + first + i;
      for (int at = column; at < count; at += kColumns * kAhead) {
        int32_t loaded[kAhead];
#pragma unroll
        for (int j = 0; j < kAhead; ++j) {
          const int entry = at + j * kColumns;
          loaded[j] = valid && entry < count ? __ldg(entries + list[entry] * args.num_outputs) : -1;
        }
#pragma unroll
        for (int j = 0; j < kAhead; ++j) {
          if (at + j * kColumns < count) in[list[at + j * kColumns]][i] = loaded[j];
        }
      }
    }
  }
};

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_TILE_OFFSETS_CUH_
