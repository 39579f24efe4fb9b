// SPDX-License-Identifier: Apache-2.0
// The parts of the warpgroup kernel that find a block's work.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_FINDER_CUH_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_FINDER_CUH_

#include <cstdint>

#include "voxconv/backends/cuda/cuda_backend.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/dataflows/implicit_gemm/warpgroup_config.cuh"

namespace voxconv {

#if VOXCONV_WARPGROUP_MMA

// Finds the block's next pieces of work, their offsets and their table entries. kFindThreads
// threads do so together. Each looks up the rows thread, thread + kFindThreads, ... of a tile.
template <typename Config>
class PieceFinder {
  using Segment = typename Config::Segment;
  static constexpr int kThreads = Config::kFindThreads;
  static constexpr int kLookUps = Config::kRows / kThreads;

 public:
  __device__ PieceFinder(const ImplicitGemmArgs& args, CudaTicket* ticket,
                         const WarpgroupRing<Config>& ring)
      : args_(args), ticket_(ticket), ring_(ring), thread_(threadIdx.x % kThreads) {}

  // Asks for the number of a piece that no other block has. A piece taken early would wait behind
  // this block's current one while other blocks are idle.
  __device__ void Ask() {
    AwaitEarlierKernels();
    if (thread_ == 0) taken_ = gridDim.x + atomicAdd(&ticket_->taken, 1);
  }
  // The number that was asked for.
  __device__ uint32_t Answer() const {
    if (thread_ == 0) ring_.control.taken = taken_;
    Meet();
    return ring_.control.taken;
  }

  // Makes the segment from the offsets that the rows have. All threads must have finished with the
  // segment before.
  __device__ Segment Find(const TilePiece<Config>& piece, uint32_t number, int word) {
    uint32_t masks[kLookUps];
#pragma unroll
    for (int i = 0; i < kLookUps; ++i) {
      const int64_t position = piece.first_row + i * kThreads + thread_;
      rows_[i] = args_.ordered ? 0 : OutputRow(args_, piece.split, position);
      masks[i] = RowMask(args_, piece.split, rows_[i], position, word);
    }
    uint32_t(&warp_masks)[Config::kRows / 32] = ring_.control.warp_masks;
#pragma unroll
    for (int i = 0; i < kLookUps; ++i) {
      const uint32_t any = __reduce_or_sync(~0u, masks[i]);
      if (thread_ % 32 == 0) warp_masks[i * (kThreads / 32) + thread_ / 32] = any;
    }
    Meet();
    Segment segment{.piece = number,
                    .word = word,
                    .channel = piece.channel,
                    .first_offset = args_.split_ptr[piece.split] + word * 32};
    uint32_t offsets = 0;
#pragma unroll
    for (int g = 0; g < Config::kGroups; ++g) {
      segment.group[g] = warp_masks[2 * g] | warp_masks[2 * g + 1];
      offsets |= segment.group[g];
    }
    segment.shares = piece.SharesOf(offsets);
    segment.offsets = ShareOf(offsets, piece.share, segment.shares);
    return segment;
  }

  __device__ void Send(const Segment& segment) {
    if (thread_ == 0) {
      AwaitPhase(ring_.SegmentEmpty(slot_.slot), slot_.parity ^ 1);
      ring_.control.segments[slot_.slot] = segment;
      Arrive(ring_.SegmentFull(slot_.slot));
    }
    __syncwarp();
    slot_.Advance();
  }

  // Sends the end of the block's work. The last block to leave resets the ticket.
  __device__ void Leave(uint32_t pieces) {
    Send({.piece = pieces});
    if (thread_ != 0) return;
    __threadfence();
    if (atomicAdd(&ticket_->finished, 1) + 1 < gridDim.x) return;
    ticket_->taken = 0;
    ticket_->finished = 0;
  }

  // Call this after Find, and before CopyEntries. Rows past the end get the entries of another row.
  // Nobody stores their products.
  __device__ void PointToEntries(const TilePiece<Config>& piece, int word) {
    stride_ = static_cast<uint32_t>(EntryStride(args_));
    const int64_t first = (args_.split_ptr[piece.split] + word * 32) * int64_t{stride_};
#pragma unroll
    for (int i = 0; i < kLookUps; ++i) {
      const int64_t position = piece.first_row + i * kThreads + thread_;
      entries_[i] = KeepWhole(EntriesOf(args_, rows_[i], position) + first);
    }
  }
  // Begins to copy the entries of the tile's rows under bit `bit` to `to`, [kRows].
  __device__ void CopyEntries(const int32_t* to, int bit) const {
    const uint32_t thread_to = SharedAddress(to + thread_), bytes = bit * sizeof(int32_t);
#pragma unroll
    for (int i = 0; i < kLookUps; ++i) {
      CopyAsync4(thread_to + i * kThreads * sizeof(int32_t),
                 RowAddress(entries_[i], bytes, stride_));
    }
  }

  __device__ void Meet() const {
    constexpr int kBarrier = 1;
    if constexpr (kThreads == 32) {
      __syncwarp();
    } else {
      asm volatile("bar.sync %0, %1;\n" ::"n"(kBarrier), "n"(kThreads) : "memory");
    }
  }

 private:
  // Cuts the set bits into `shares` ranges and returns range number `share`.
  static __device__ uint32_t ShareOf(uint32_t offsets, int share, int shares) {
    if (shares == 1) return offsets;
    const int count = __popc(offsets);
    const int first = count * share / shares, last = count * (share + 1) / shares;
    uint32_t mine = 0;
    for (int i = 0; i < last; ++i) {
      const uint32_t lowest = offsets & -offsets;
      if (i >= first) mine |= lowest;
      offsets ^= lowest;
    }
    return mine;
  }

  const ImplicitGemmArgs& args_;
  CudaTicket* ticket_;
  const WarpgroupRing<Config>& ring_;
  int thread_;
  int32_t rows_[kLookUps];  // output rows, if the table is not ordered
  const char* entries_[kLookUps];
  uint32_t stride_ = 0;
  uint32_t taken_ = 0;  // number of the next piece; only the first thread has it
  RingSlot<Config::kSegments> slot_;
};

// A warp that finds the block's work while others copy. It runs a little ahead of them, so that
// they wait neither for the table nor for the next piece.
template <typename Config>
class TileScout {
 public:
  __device__ TileScout(const ImplicitGemmArgs& args, CudaTicket* ticket,
                       const WarpgroupRing<Config>& ring)
      : args_(args), ring_(ring), finder_(args, ticket, ring) {}

  __device__ void Run() {
    const uint32_t pieces = static_cast<uint32_t>(TilePiece<Config>::Count(args_));
    for (uint32_t number = blockIdx.x; number < pieces; number = Take()) {
      const TilePiece<Config> piece(args_, number);
      for (int word = 0; word < piece.words; ++word) {
        const typename Config::Segment segment = finder_.Find(piece, number, word);
        if (piece.share >= segment.shares) break;
        finder_.Send(segment);
        finder_.PointToEntries(piece, word);
        LoadEntries(segment.offsets);
      }
    }
    finder_.Leave(pieces);
  }

 private:
  // Waits until the copiers are at the last kEntrySlots - 1 offsets that were sent, and takes the
  // next piece.
  __device__ uint32_t Take() {
    AwaitPhase(ring_.EntriesEmpty(slot_.slot), slot_.parity ^ 1);
    finder_.Ask();
    return finder_.Answer();
  }

  __device__ void LoadEntries(uint32_t left) {
    for (; left != 0; left &= left - 1) {
      AwaitPhase(ring_.EntriesEmpty(slot_.slot), slot_.parity ^ 1);
      finder_.CopyEntries(ring_.control.entries[slot_.slot], __ffs(left) - 1);
      ArriveAfterCopies(ring_.EntriesFull(slot_.slot));
      slot_.Advance();
    }
  }

  const ImplicitGemmArgs& args_;
  const WarpgroupRing<Config>& ring_;
  PieceFinder<Config> finder_;
  RingSlot<Config::kEntrySlots> slot_;
};

#endif  // VOXCONV_WARPGROUP_MMA

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_FINDER_CUH_
