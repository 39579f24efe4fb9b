// SPDX-License-Identifier: Apache-2.0
// The part of the warpgroup kernel that copies inputs and weights to shared memory.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_COPIER_CUH_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_COPIER_CUH_

#include <cstdint>

#include "voxconv/backends/cuda/cuda_backend.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/dataflows/implicit_gemm/warpgroup_config.cuh"

namespace voxconv {

#if VOXCONV_WARPGROUP_MMA

// Copies a block's tiles with kCopyThreads threads. Each thread looks up the rows thread, thread +
// kCopyThreads, ... of a tile. It copies vector thread % 8 of four neighbouring rows at a time.
template <typename Config>
class TileCopier {
  using Element = typename Config::Element;
  using Segment = typename Config::Segment;
  static constexpr int kVectorBytes = 16;
  static constexpr int kVector = kVectorBytes / sizeof(Element);
  static constexpr int kRowVectors = Config::kRowBytes / kVectorBytes;  // of a slab
  static constexpr int kRowsAtOnce = 4;
  static constexpr int kRowStep = Config::kCopyThreads / kRowVectors * kRowsAtOnce;
  static_assert(64 % kRowStep == 0);
  static constexpr int kLookUps = Config::kRows / Config::kCopyThreads;
  static constexpr int kCopyBarrier = 1;

 public:
  __device__ TileCopier(const ImplicitGemmArgs& args, const CUtensorMap& weights,
                        CudaTicket* ticket, const WarpgroupRing<Config>& ring)
      : args_(args),
        weights_(weights),
        ticket_(ticket),
        ring_(ring),
        thread_(threadIdx.x % Config::kCopyThreads) {
    const int row = thread_ / kRowVectors * kRowsAtOnce, v = thread_ % kRowVectors;
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      // 16-byte columns are swizzled by bits of the 128-byte line that they lie in.
      const int line = (row + i) * Config::kRowBytes / 128 % kRowVectors;
      to_[i] = (row + i) * Config::kRowBytes + (v ^ line) * kVectorBytes;
    }
  }

  __device__ void Run() {
    const uint32_t pieces = static_cast<uint32_t>(TilePiece<Config>::Count(args_));
    for (uint32_t number = blockIdx.x; number < pieces;) {
      const TilePiece<Config> piece(args_, number);
      for (int word = 0; word < piece.words; ++word) {
        LoadMasks(piece, word);
        const Segment segment = FindOffsets(piece, number, word);
        if (piece.share >= segment.shares) {
          Take();
          break;
        }
        Send(segment);
        LoadEntries(piece, word, segment.offsets);
        CopySegment(piece, segment);
      }
      number = Broadcast(taken_);
    }
    Send({.piece = pieces});
    if (thread_ == 0) Leave();
  }

 private:
  __device__ void MeetCopiers() const {
    asm volatile("bar.sync %0, %1;\n" ::"n"(kCopyBarrier), "n"(Config::kCopyThreads) : "memory");
  }

  // Asks for the number of a piece that no other block has. The block asks as late as it can
  // without a wait. A piece taken early would wait behind this block's current one while other
  // blocks are idle.
  __device__ void Take() {
    AwaitEarlierKernels();
    if (thread_ == 0) taken_ = gridDim.x + atomicAdd(&ticket_->taken, 1);
  }
  __device__ uint32_t Broadcast(uint32_t taken) const {
    if (thread_ == 0) ring_.control.taken = taken;
    MeetCopiers();
    return ring_.control.taken;
  }
  // The last block to leave resets the ticket.
  __device__ void Leave() const {
    __threadfence();
    if (atomicAdd(&ticket_->finished, 1) + 1 < gridDim.x) return;
    ticket_->taken = 0;
    ticket_->finished = 0;
  }

  // Loads the masks of this thread's rows, for FindOffsets.
  __device__ void LoadMasks(const TilePiece<Config>& piece, int word) {
#pragma unroll
    for (int i = 0; i < kLookUps; ++i) {
      const int64_t position = piece.first_row + i * Config::kCopyThreads + thread_;
      rows_[i] = args_.ordered ? 0 : OutputRow(args_, piece.split, position);
      masks_[i] = RowMask(args_, piece.split, rows_[i], position, word);
    }
  }

  // Makes the segment from the offsets that the rows have. When this function returns, all copiers
  // have finished with the segment before.
  __device__ Segment FindOffsets(const TilePiece<Config>& piece, uint32_t number, int word) {
    uint32_t(&warp_masks)[Config::kRows / 32] = ring_.control.warp_masks;
#pragma unroll
    for (int i = 0; i < kLookUps; ++i) {
      const uint32_t any = __reduce_or_sync(~0u, masks_[i]);
      if (thread_ % 32 == 0) warp_masks[i * (Config::kCopyThreads / 32) + thread_ / 32] = any;
    }
    MeetCopiers();
    Segment segment{.piece = number, .word = word};
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
      AwaitPhase(ring_.SegmentEmpty(segment_slot_.slot), segment_slot_.parity ^ 1);
      ring_.control.segments[segment_slot_.slot] = segment;
      Arrive(ring_.SegmentFull(segment_slot_.slot));
    }
    segment_slot_.Advance();
  }

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

  // Copies all table entries of the segment at once, so that it waits for the table once. Rows past
  // the end get the entries of another row. Nobody stores their products.
  __device__ void LoadEntries(const TilePiece<Config>& piece, int word, uint32_t left) {
    const uint32_t stride = static_cast<uint32_t>(EntryStride(args_));
    const int64_t first = (args_.split_ptr[piece.split] + word * 32) * int64_t{stride};
    const char* entries[kLookUps];
#pragma unroll
    for (int i = 0; i < kLookUps; ++i) {
      const int64_t position = piece.first_row + i * Config::kCopyThreads + thread_;
      entries[i] = KeepWhole(EntriesOf(args_, rows_[i], position) + first);
    }
    const uint32_t to = SharedAddress(&ring_.control.entries[0][thread_]);
    for (; left != 0; left &= left - 1) {
      const uint32_t bytes = (__ffs(left) - 1) * sizeof(int32_t);
#pragma unroll
      for (int i = 0; i < kLookUps; ++i) {
        CopyAsync4(to + bytes * Config::kRows + i * Config::kCopyThreads * sizeof(int32_t),
                   RowAddress(entries[i], bytes, stride));
      }
    }
    CommitCopies();
    WaitCopies<0>();
    MeetCopiers();
  }

  __device__ void CopySegment(const TilePiece<Config>& piece, const Segment& segment) {
    const int first_offset = args_.split_ptr[piece.split] + segment.word * 32;
    const bool last_word = segment.word + 1 == piece.words;
    AwaitEarlierKernels();
    if (last_word && segment.offsets == 0) Take();
    for (uint32_t left = segment.offsets; left != 0; left &= left - 1) {
      const int bit = __ffs(left) - 1;
      if (last_word && (left & (left - 1)) == 0) Take();
      for (int depth = 0; depth < args_.c_in; depth += Config::kDepth) {
        AwaitPhase(ring_.Empty(slot_.slot), slot_.parity ^ 1);
        if (thread_ == 0) CopyWeights(piece.channel, depth, first_offset + bit);
        CopyInputs(segment, bit, depth);
        ArriveAfterCopies(ring_.Full(slot_.slot));
        slot_.Advance();
      }
    }
  }

  __device__ void CopyWeights(int channel, int depth, int offset) const {
    const uint32_t full = ring_.Full(slot_.slot);
    ArriveExpecting(full, Config::kBoxes * Config::kBoxBytes);
    if constexpr (Config::kWide) {
#pragma unroll
      for (int b = 0; b < Config::kBoxes; ++b) {
        CopyBox(ring_.Weights(slot_.slot) + b * Config::kBoxBytes, weights_, depth, channel,
                offset + b * args_.num_offsets, full);
      }
    } else {
#pragma unroll
      for (int b = 0; b < Config::kBoxes; ++b) {
        CopyBox(ring_.Weights(slot_.slot) + b * Config::kBoxBytes, weights_, channel + b * 64,
                depth, offset, full);
      }
    }
  }

  __device__ void CopyInputs(const Segment& segment, int bit, int depth) const {
    const int row = thread_ / kRowVectors * kRowsAtOnce, v = thread_ % kRowVectors;
    // A slab of two parts may lack its second part.
    constexpr bool kHalves = Config::kSlabs == 1;
    if (kHalves && args_.c_in - depth <= Config::kPartDepth && v >= kRowVectors / 2) return;
    const int c = depth + v * kVector;
    const char* input = KeepWhole(static_cast<const Element*>(args_.input) + c);
    const uint32_t slot = ring_.Inputs(slot_.slot);
    const int32_t* entries = ring_.control.entries[bit] + row;
#pragma unroll
    for (int g = 0; g < Config::kGroups; ++g) {
      if ((segment.group[g] >> bit & 1) == 0) continue;
      int4 fours[64 / kRowStep];
#pragma unroll
      for (int j = 0; j < 64 / kRowStep; ++j) {
        fours[j] = *reinterpret_cast<const int4*>(entries + g * 64 + j * kRowStep);
      }
#pragma unroll
      for (int j = 0; j < 64 / kRowStep; ++j) {
        CopyRows(slot + (g * 64 + j * kRowStep) * Config::kRowBytes, input, fours[j],
                 args_.c_in - depth);
      }
    }
  }

  // Copies this thread's vectors of four rows: one of each slab that has some of the `left`
  // channels that are left. `input` is the first vector of row 0.
  __device__ void CopyRows(uint32_t slab, const char* input, const int4& four, int left) const {
    constexpr int kSlabDepth = Config::kDepth / Config::kSlabs;
    const int32_t rows[kRowsAtOnce] = {four.x, four.y, four.z, four.w};
    const uint32_t row_bytes = args_.input_row_bytes;
    const int c = thread_ % kRowVectors * kVector;
    const char* from[kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) from[i] = RowAddress(input, rows[i], row_bytes);
#pragma unroll
    for (int s = 0; s < Config::kSlabs; ++s) {
      if (s > 0 && left <= s * kSlabDepth) return;
      const bool inside = c < left - s * kSlabDepth;
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) {
        CopyAsync16(slab + s * Config::kSlabBytes + to_[i], from[i] + s * Config::kRowBytes,
                    inside && rows[i] >= 0);
      }
    }
  }

  const ImplicitGemmArgs& args_;
  const CUtensorMap& weights_;
  CudaTicket* ticket_;
  const WarpgroupRing<Config>& ring_;
  int thread_;
  uint32_t to_[kRowsAtOnce];  // where this thread's vectors go in a slot
  uint32_t masks_[kLookUps];
  int32_t rows_[kLookUps];  // output rows, if the table is not ordered
  uint32_t taken_ = 0;      // number of the next piece; only the first thread has it
  RingSlot<Config::kStages> slot_;
  RingSlot<Config::kSegments> segment_slot_;
};

#endif  // VOXCONV_WARPGROUP_MMA

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_COPIER_CUH_
