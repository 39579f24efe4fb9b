// SPDX-License-Identifier: Apache-2.0
// The parts of the warpgroup kernel that copy inputs and weights to shared memory.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_COPIER_CUH_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_COPIER_CUH_

#include <cstdint>

#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/dataflows/implicit_gemm/warpgroup_finder.cuh"

namespace voxconv {

#if VOXCONV_WARPGROUP_MMA

// Has the tensor memory accelerator copy the weights of a step. One thread does so.
template <typename Config>
class WeightCopier {
  using Segment = typename Config::Segment;

 public:
  __device__ WeightCopier(const ImplicitGemmArgs& args, const CUtensorMap& weights,
                          const WarpgroupRing<Config>& ring)
      : args_(args), weights_(weights), ring_(ring) {}

  // Copies the weights of `offset`, from input channel `depth` and output channel `channel` on, to
  // an empty slot.
  __device__ void CopyStep(int slot, int channel, int depth, int offset) const {
    const uint32_t full = ring_.Full(slot), to = ring_.Weights(slot);
    ArriveExpecting(full, Config::kBoxes * Config::kBoxBytes);
#pragma unroll
    for (int b = 0; b < Config::kBoxes; ++b) {
      if constexpr (Config::kWide) {
        CopyBox(to + b * Config::kBoxBytes, weights_, depth, channel,
                offset + b * args_.num_offsets, full);
      } else {
        CopyBox(to + b * Config::kBoxBytes, weights_, channel + b * 64, depth, offset, full);
      }
    }
  }

  // Copies the weights of all pieces that the scout sends.
  __device__ void Run() {
    const uint32_t pieces = static_cast<uint32_t>(TilePiece<Config>::Count(args_));
    for (;;) {
      AwaitPhase(ring_.SegmentFull(segment_slot_.slot), segment_slot_.parity);
      const Segment& segment = ring_.control.segments[segment_slot_.slot];
      if (segment.piece >= pieces) return;
      const int channel = segment.channel, first_offset = segment.first_offset;
      uint32_t left = segment.offsets;
      Arrive(ring_.SegmentEmpty(segment_slot_.slot));
      segment_slot_.Advance();
      AwaitEarlierKernels();
      for (; left != 0; left &= left - 1) {
        for (int depth = 0; depth < args_.c_in; depth += Config::kDepth) {
          AwaitPhase(ring_.Empty(slot_.slot), slot_.parity ^ 1);
          CopyStep(slot_.slot, channel, depth, first_offset + __ffs(left) - 1);
          slot_.Advance();
        }
      }
    }
  }

 private:
  const ImplicitGemmArgs& args_;
  const CUtensorMap& weights_;
  const WarpgroupRing<Config>& ring_;
  RingSlot<Config::kStages> slot_;
  RingSlot<Config::kSegments> segment_slot_;
};

// Copies a block's inputs with kCopyThreads threads. Each copies vector thread % kRowVectors of
// four neighbouring rows at a time.
template <typename Config>
class InputCopier {
  using Element = typename Config::Element;
  using Segment = typename Config::Segment;
  static constexpr int kVectorBytes = 16;
  static constexpr int kVector = kVectorBytes / sizeof(Element);
  static constexpr int kRowVectors = Config::kRowBytes / kVectorBytes;  // of a slab
  static constexpr int kRowsAtOnce = 4;
  // Threads that share rows, and the groups of 64 rows that they copy.
  static constexpr int kTeam = Config::kCopiesGroups ? 32 : Config::kCopyThreads;
  static constexpr int kTeamGroups = Config::kCopiesGroups ? 1 : Config::kGroups;
  static constexpr int kRowStep = kTeam / kRowVectors * kRowsAtOnce;
  static_assert(64 % kRowStep == 0);

 public:
  __device__ InputCopier(const ImplicitGemmArgs& args, const CUtensorMap& weights,
                         CudaTicket* ticket, const WarpgroupRing<Config>& ring)
      : args_(args),
        ticket_(ticket),
        ring_(ring),
        weights_(args, weights, ring),
        thread_(threadIdx.x % kTeam) {
    const int row = FirstRow(), v = thread_ % kRowVectors;
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      // 16-byte columns are swizzled by bits of the 128-byte line that they lie in.
      const int line = (row + i) * Config::kRowBytes / 128 % kRowVectors;
      to_[i] = (row + i) * Config::kRowBytes + (v ^ line) * kVectorBytes;
    }
  }

  __device__ void Run() {
    const uint32_t pieces = static_cast<uint32_t>(TilePiece<Config>::Count(args_));
    if constexpr (Config::kScouts) {
      FollowScout(pieces);
    } else {
      CopyPieces(pieces);
    }
  }

 private:
  // Number of this thread's team.
  static __device__ int Team() {
    return Config::kCopiesGroups ? static_cast<int>(threadIdx.x / 32) - Config::kGroups * 4 : 0;
  }
  // The first row that this thread copies.
  __device__ int FirstRow() const { return Team() * 64 + thread_ / kRowVectors * kRowsAtOnce; }

  __device__ void FollowScout(uint32_t pieces) {
    for (;;) {
      AwaitPhase(ring_.SegmentFull(segment_slot_.slot), segment_slot_.parity);
      Segment segment = ring_.control.segments[segment_slot_.slot];
      if (segment.piece >= pieces) return;
      if constexpr (Config::kCopiesGroups) {
        segment.group[0] = ring_.control.segments[segment_slot_.slot].group[Team()];
      }
      __syncwarp();
      if (thread_ % 32 == 0) Arrive(ring_.SegmentEmpty(segment_slot_.slot));
      segment_slot_.Advance();
      AwaitEarlierKernels();
      for (uint32_t left = segment.offsets; left != 0; left &= left - 1) {
        AwaitPhase(ring_.EntriesFull(entry_slot_.slot), entry_slot_.parity);
        CopyOffset(segment, __ffs(left) - 1, ring_.control.entries[entry_slot_.slot]);
        Arrive(ring_.EntriesEmpty(entry_slot_.slot));
        entry_slot_.Advance();
      }
    }
  }

  // Without a scout, the copiers find the work themselves.
  __device__ void CopyPieces(uint32_t pieces) {
    PieceFinder<Config> finder(args_, ticket_, ring_);
    for (uint32_t number = blockIdx.x; number < pieces; number = finder.Answer()) {
      const TilePiece<Config> piece(args_, number);
      for (int word = 0; word < piece.words; ++word) {
        const Segment segment = finder.Find(piece, number, word);
        if (piece.share >= segment.shares) {
          finder.Ask();
          break;
        }
        finder.Send(segment);
        finder.PointToEntries(piece, word);
        CopySegment(segment, word + 1 == piece.words, finder);
      }
    }
    finder.Leave(pieces);
  }

  // Copies all table entries of the segment at once, so that it waits for the table once. Asks for
  // the next piece as late as it can without a wait.
  __device__ void CopySegment(const Segment& segment, bool last_word, PieceFinder<Config>& finder) {
    for (uint32_t left = segment.offsets; left != 0; left &= left - 1) {
      const int bit = __ffs(left) - 1;
      finder.CopyEntries(ring_.control.entries[bit], bit);
    }
    CommitCopies();
    WaitCopies<0>();
    finder.Meet();
    AwaitEarlierKernels();
    if (last_word && segment.offsets == 0) finder.Ask();
    for (uint32_t left = segment.offsets; left != 0; left &= left - 1) {
      if (last_word && (left & (left - 1)) == 0) finder.Ask();
      const int bit = __ffs(left) - 1;
      CopyOffset(segment, bit, ring_.control.entries[bit]);
    }
  }

  // Copies the inputs under bit `bit` of the groups segment.group[0] to [kTeamGroups - 1].
  // `entries` has those of the tile's rows.
  __device__ void CopyOffset(const Segment& segment, int bit, const int32_t* entries) {
    for (int depth = 0; depth < args_.c_in; depth += Config::kDepth) {
      AwaitPhase(ring_.Empty(slot_.slot), slot_.parity ^ 1);
      if (!Config::kWeightWarp && thread_ == 0 && Team() == 0) {
        weights_.CopyStep(slot_.slot, segment.channel, depth, segment.first_offset + bit);
      }
      CopyStep(segment, bit, depth, entries);
      ArriveAfterCopies(ring_.Full(slot_.slot));
      slot_.Advance();
    }
  }

  __device__ void CopyStep(const Segment& segment, int bit, int depth,
                           const int32_t* entries) const {
    const int row = FirstRow(), v = thread_ % kRowVectors;
    // A slab of two parts may lack its second part.
    constexpr bool kHalves = Config::kSlabs == 1;
    if (kHalves && args_.c_in - depth <= Config::kPartDepth && v >= kRowVectors / 2) return;
    const char* input = KeepWhole(static_cast<const Element*>(args_.input) + depth + v * kVector);
    const uint32_t slot = ring_.Inputs(slot_.slot);
#pragma unroll
    for (int g = 0; g < kTeamGroups; ++g) {
      if ((segment.group[g] >> bit & 1) == 0) continue;
      int4 fours[64 / kRowStep];
#pragma unroll
      for (int j = 0; j < 64 / kRowStep; ++j) {
        fours[j] = *reinterpret_cast<const int4*>(entries + row + g * 64 + j * kRowStep);
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
  CudaTicket* ticket_;
  const WarpgroupRing<Config>& ring_;
  const WeightCopier<Config> weights_;
  int thread_;
  uint32_t to_[kRowsAtOnce];  // where this thread's vectors go in a slot
  RingSlot<Config::kStages> slot_;
  RingSlot<Config::kEntrySlots> entry_slot_;
  RingSlot<Config::kSegments> segment_slot_;
};

#endif  // VOXCONV_WARPGROUP_MMA

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_COPIER_CUH_
