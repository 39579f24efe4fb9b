// SPDX-License-Identifier: Apache-2.0
// The warpgroup kernel's shapes, pieces of work and shared memory.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_CONFIG_CUH_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_CONFIG_CUH_

#include <cstdint>

#include "voxconv/backends/cuda/async_barrier.cuh"
#include "voxconv/backends/cuda/tensor_core.cuh"
#include "voxconv/backends/cuda/warpgroup_mma.cuh"
#include "voxconv/dataflows/implicit_gemm/tile_offsets.cuh"

namespace voxconv {

// kSplits: floats are multiplied as sums of two tf32 numbers.
template <typename ElementType, int kRowsValue, int kChannelsValue, int kStagesValue,
          int kBlocksValue, bool kSplitsValue = false>
struct WarpgroupConfig {
  using Element = ElementType;
  static constexpr int kRows = kRowsValue, kChannels = kChannelsValue, kStages = kStagesValue;
  static constexpr int kBlocksPerMultiprocessor = kBlocksValue;
  // Elements of 4 bytes are multiplied in tf32. Their weights lie in shared memory as [channels,
  // depth], those of 2 bytes as [depth, channels].
  static constexpr bool kWide = sizeof(Element) == 4;
  static constexpr bool kSplits = kSplitsValue;
  // An input row of a step lies in slabs of kRowBytes, the swizzle's width. Layers of 96 channels
  // mostly have 96 input channels, too. Three slabs of 32 take them in one step.
  static constexpr int kSlabs = !kWide && kChannels == 96 ? 3 : 1;
  static constexpr int kRowBytes = kSlabs == 3 ? 64 : 128;
  static constexpr int kDepth = kSlabs * kRowBytes / sizeof(Element);  // input channels of a step
  static constexpr int kProductDepth = 32 / sizeof(Element);           // those of one wgmma
  // A step leaves out parts of so many channels that lie past the input's.
  static constexpr int kPartDepth = 64 / sizeof(Element);
  static constexpr int kParts = kDepth / kPartDepth;
  static constexpr int kGroups = kRows / 64;
  // Whether a warp of its own finds the block's work (TileScout). Without a scout, the threads that
  // copy inputs do so. More warps need registers: two blocks of 128 rows and 96 or more channels,
  // and one of 256 channels, have none left.
  static constexpr bool kScouts = !kSplits && (kRows == 192 || (!kWide && kChannels == 64));
  // Whether each of the warps that copy inputs copies those of one group of 64 rows. Otherwise the
  // warps share all rows.
  static constexpr bool kCopiesGroups = kScouts && kWide;
  static constexpr int kCopyThreads =
      kCopiesGroups ? kGroups * 32 : (kBlocksValue == 1 && kRowsValue == 128 ? 128 : 64);
  // Whether one more warp copies the weights. Otherwise a thread that copies inputs does so.
  static constexpr bool kWeightWarp = kScouts && !kCopiesGroups;
  static constexpr int kFindThreads = kScouts ? 32 : kCopyThreads;
  static constexpr int kThreads =
      kGroups * 128 + kCopyThreads + (kScouts ? 32 : 0) + (kWeightWarp ? 32 : 0);

  // Products of a step whose inputs a thread holds in registers at once, if kWide. The registers
  // limit this.
  static constexpr int kHeldProducts = kSplits ? 1 : (kChannels == 256 ? 2 : 4);

  // Lanes of a warp that release a slot. If kWide, each lane reads slots itself and releases them
  // itself: racecheck does not see that a lane's reads come before another lane's release.
  static constexpr int kReleases = kWide ? 32 : 1;

  static constexpr int kSlabBytes = kRows * kRowBytes;
  static constexpr int kInputBytes = kSlabs * kSlabBytes;
  // One box of the tensor memory accelerator.
  static constexpr int kBoxRowBytes = 128;
  static constexpr int kBoxRows = kWide ? kChannels : kDepth;
  static constexpr int kBoxBytes = kBoxRows * kBoxRowBytes;
  // Of 64 output channels each. If kSplits, the rounded weights and their remainders.
  static constexpr int kBoxes = kWide ? (kSplits ? 2 : 1) : (kChannels + 63) / 64;
  static constexpr int kStageBytes = kInputBytes + kBoxes * kBoxBytes;

  // The work for one mask word of one piece.
  struct Segment {
    uint32_t piece;
    int32_t word;
    int32_t channel;          // the first output channel
    int32_t first_offset;     // of the word
    int32_t shares;           // shares of the piece's tile
    uint32_t offsets;         // bits of the word that this piece multiplies
    uint32_t group[kGroups];  // bits of the word that each group of 64 rows has
  };
  // One is multiplied while another is copied and a scout finds the next.
  static constexpr int kSegments = kScouts ? 3 : 2;
  // Offsets whose table entries lie in shared memory. A scout loads those of the next offset, and
  // of the next two where an offset takes one step.
  static constexpr int kEntrySlots = kScouts ? (kWide ? 2 : 3) : 32;

  // Shared memory behind the slots of the ring.
  struct Control {
    // The input row of each row under an offset, -1 = none. Rows past the end have those of another
    // row. Without a scout, an offset's slot is its bit.
    int32_t entries[kEntrySlots][kRows];
    uint64_t entries_full[kEntrySlots], entries_empty[kEntrySlots];  // only with a scout
    uint64_t full[kStages], empty[kStages];
    uint64_t segment_full[kSegments], segment_empty[kSegments];
    Segment segments[kSegments];
    uint32_t warp_masks[kRows / 32];  // the union of the masks of 32 rows each
    uint32_t taken;                   // number of the block's next piece
    uint32_t last[kGroups];           // whether the group's sums are the last of its tile's
  };
  static constexpr int kSharedBytes = kStages * kStageBytes + static_cast<int>(sizeof(Control));
};

// A piece of work: a tile, or a share of a tile's offsets. A tile has rows of one part and a range
// of channels. The row orders put the tiles with the most offsets last. These tiles have the lowest
// numbers, and only they are shared.
template <typename Config>
struct TilePiece {
  static constexpr int64_t kRows = Config::kRows, kChannels = Config::kChannels;

  __host__ __device__ static int64_t Count(const ImplicitGemmArgs& args) {
    return (args.num_outputs + kRows - 1) / kRows * ((args.c_out + kChannels - 1) / kChannels) *
               args.num_parts() +
           args.shared_tiles * (args.shares - 1);
  }

  __device__ TilePiece(const ImplicitGemmArgs& args, uint32_t number) {
    const uint32_t tiles_n = (args.c_out + kChannels - 1) / kChannels;
    const uint32_t tiles_m = (args.num_outputs + kRows - 1) / kRows;
    const uint32_t parts = args.num_parts(), shared = args.shared_tiles * args.shares;
    max_shares = number < shared ? args.shares : 1;
    tile = number < shared ? number / args.shares : number - shared + args.shared_tiles;
    share = number < shared ? number % args.shares : 0;
    const uint32_t rest = tile / tiles_n;
    channel = static_cast<int>((tile - rest * tiles_n) * kChannels);
    first_row = (tiles_m - 1 - rest / parts) * kRows;
    split = static_cast<int>(rest % parts);
    share_offsets = args.share_offsets;
    words = SplitWords(args, split);
  }

  // The number of shares of a tile with these offsets. Pieces of higher shares have no work.
  __device__ int SharesOf(uint32_t offsets) const {
    return max(min(max_shares, __popc(offsets) / share_offsets), 1);
  }

  uint32_t tile;
  int share, max_shares, share_offsets;
  int64_t first_row;
  int channel;
  int split;  // also the part, because k_parts is 1
  int words;
};

#if VOXCONV_WARPGROUP_MMA

// Shared-memory addresses of the ring and its barriers.
template <typename Config>
struct WarpgroupRing {
  using Control = typename Config::Control;

  __device__ explicit WarpgroupRing(char* shared)
      : slots(SharedAddress(shared)),
        control(*reinterpret_cast<Control*>(shared + Config::kStages * Config::kStageBytes)) {}

  __device__ void Init() {
    if (threadIdx.x == 0) {
      constexpr int kMultiplyWarps = Config::kGroups * 4;
      constexpr int kScoutReaders =
          Config::kScouts ? Config::kCopyThreads / 32 + (Config::kWeightWarp ? 1 : 0) : 0;
      for (int s = 0; s < Config::kStages; ++s) {
        InitBarrier(Full(s), Config::kCopyThreads + 1);
        InitBarrier(Empty(s), kMultiplyWarps * Config::kReleases);
      }
      for (int s = 0; s < Config::kSegments; ++s) {
        InitBarrier(SegmentFull(s), 1);
        InitBarrier(SegmentEmpty(s), kMultiplyWarps + kScoutReaders);
      }
      for (int s = 0; Config::kScouts && s < Config::kEntrySlots; ++s) {
        InitBarrier(EntriesFull(s), Config::kFindThreads);
        InitBarrier(EntriesEmpty(s), Config::kCopyThreads);
      }
      FenceBarriers();
    }
    __syncthreads();
  }

  __device__ uint32_t Inputs(int slot) const { return slots + slot * Config::kStageBytes; }
  __device__ uint32_t Weights(int slot) const { return Inputs(slot) + Config::kInputBytes; }
  __device__ uint32_t Full(int slot) const { return SharedAddress(&control.full[slot]); }
  __device__ uint32_t Empty(int slot) const { return SharedAddress(&control.empty[slot]); }
  __device__ uint32_t EntriesFull(int s) const { return SharedAddress(&control.entries_full[s]); }
  __device__ uint32_t EntriesEmpty(int s) const { return SharedAddress(&control.entries_empty[s]); }
  __device__ uint32_t SegmentFull(int s) const { return SharedAddress(&control.segment_full[s]); }
  __device__ uint32_t SegmentEmpty(int s) const { return SharedAddress(&control.segment_empty[s]); }

  uint32_t slots;
  Control& control;
};

#endif  // VOXCONV_WARPGROUP_MMA

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_CONFIG_CUH_
