// Output-stationary implicit GEMM with products of whole warpgroups (wgmma), for f16 and bf16 on
// compute capability 9.0.
//
// As the block kernel, but 64 rows (the M of one wgmma) share one set of offsets, operands are read
// from shared memory by the tensor cores themselves, and copying and multiplying are different
// warps' work: the last warpgroup of a block gathers inputs and has the tensor memory accelerator
// bring weights, each of the others multiplies 64 rows by all channels of the block. They meet at
// the barriers of a ring of slots alone. A block stays and takes one tile after the other, so that
// the copies for the next are under way while the one before is stored.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_KERNEL_CUH_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_KERNEL_CUH_

#include <algorithm>
#include <cstdint>

#include "backends/cuda/async_barrier.cuh"
#include "backends/cuda/cuda_launch.h"
#include "backends/cuda/tensor_core.cuh"
#include "backends/cuda/tensor_map.h"
#include "backends/cuda/warpgroup_mma.cuh"
#include "dataflows/implicit_gemm/tile_offsets.cuh"

namespace voxconv {

template <typename ElementType, int kRowsValue, int kChannelsValue, int kStagesValue,
          int kBlocksValue>
struct WarpgroupConfig {
  using Element = ElementType;
  static constexpr int kRows = kRowsValue, kChannels = kChannelsValue, kStages = kStagesValue;
  static constexpr int kBlocksPerMultiprocessor = kBlocksValue;
  static constexpr int kDepth = 64;  // input channels of a step: 128 bytes, the swizzle's width
  static constexpr int kGroups = kRows / 64;
  static constexpr int kCopyThreads = kBlocksValue == 1 ? 128 : 64;
  static constexpr int kThreads = kGroups * 128 + kCopyThreads;

  static constexpr int kRowBytes = 128;
  static constexpr int kInputBytes = kRows * kRowBytes;
  static constexpr int kAtoms = (kChannels + 63) / 64;  // of 64 output channels
  static constexpr int kAtomBytes = kDepth * kRowBytes;
  static constexpr int kStageBytes = kInputBytes + kAtoms * kAtomBytes;

  // What is to be multiplied for one word of the masks of one tile.
  struct Segment {
    uint32_t piece;
    int32_t word;
    int32_t shares;           // of the tile
    uint32_t offsets;         // bits of the word, this piece's share of them
    uint32_t group[kGroups];  // those that each group of 64 rows has
  };
  static constexpr int kSegments = 2;  // one multiplied, one copied

  // Behind the slots.
  struct Control {
    int32_t entries[32][kRows];  // input row of each row under each bit, -1 = none
    uint64_t full[kStages], empty[kStages];
    uint64_t segment_full[kSegments], segment_empty[kSegments];
    Segment segments[kSegments];
    uint32_t warp_masks[kRows / 32];  // of 32 rows each
    uint32_t taken;                   // piece
    uint32_t last[kGroups];           // whether the group's sums are the last of its tile's
  };
  static constexpr int kSharedBytes = kStages * kStageBytes + static_cast<int>(sizeof(Control));
};

// A piece of work: a tile (rows of one part, and channels) or a share of its offsets. The tiles
// with the most offsets, which the orders put last, are numbered first, and they alone are shared.
template <typename Config>
struct TilePiece {
  static constexpr int64_t kRows = Config::kRows, kChannels = Config::kChannels;
  static constexpr int kMinOffsets = 4;  // of a share: fewer cost more to add up than to multiply

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
    part = static_cast<int>(rest % parts);
    split = part;
    words = SplitWords(args, split);
  }

  // Into how many shares a tile with these offsets goes: as many pieces of it have work.
  __device__ int SharesOf(uint32_t offsets) const {
    return max(min(max_shares, __popc(offsets) / kMinOffsets), 1);
  }

  uint32_t tile;
  int share, max_shares;
  int64_t first_row;
  int channel;
  int part, split;
  int words;
};

#if VOXCONV_WARPGROUP_MMA

// A slot of a ring and the parity of the phase it is in.
template <int kSlots>
struct RingSlot {
  int slot = 0;
  uint32_t parity = 0;

  __device__ void Advance() {
    if (++slot < kSlots) return;
    slot = 0;
    parity ^= 1;
  }
};

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
      for (int s = 0; s < Config::kStages; ++s) {
        InitBarrier(Full(s), Config::kCopyThreads + 1);
        InitBarrier(Empty(s), kMultiplyWarps);
      }
      for (int s = 0; s < Config::kSegments; ++s) {
        InitBarrier(SegmentFull(s), 1);
        InitBarrier(SegmentEmpty(s), kMultiplyWarps);
      }
      FenceBarriers();
    }
    __syncthreads();
  }

  __device__ uint32_t Inputs(int slot) const { return slots + slot * Config::kStageBytes; }
  __device__ uint32_t Weights(int slot) const { return Inputs(slot) + Config::kInputBytes; }
  __device__ uint32_t Full(int slot) const { return SharedAddress(&control.full[slot]); }
  __device__ uint32_t Empty(int slot) const { return SharedAddress(&control.empty[slot]); }
  __device__ uint32_t SegmentFull(int s) const { return SharedAddress(&control.segment_full[s]); }
  __device__ uint32_t SegmentEmpty(int s) const { return SharedAddress(&control.segment_empty[s]); }

  uint32_t slots;
  Control& control;
};

// The warpgroup that copies. A thread looks up rows thread + 128 i of the tile; it copies vector
// thread % 8 of rows thread / 8 * 4 + 0, 1, 2, 3 of each group of 64.
template <typename Config>
class TileCopier {
  using Element = typename Config::Element;
  using Segment = typename Config::Segment;
  static constexpr int kVectorBytes = 16;
  static constexpr int kVector = kVectorBytes / sizeof(Element);
  static constexpr int kRowVectors = Config::kDepth / kVector;  // of a step
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
      to_[i] = (row + i) * Config::kRowBytes + (v ^ ((row + i) & 7)) * kVectorBytes;
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

  // Asks for the number of a tile that no other block has. As late as it can without a wait: a
  // tile taken early would stay behind a block's costly one while other blocks have nothing to do.
  __device__ void Take() {
    if (thread_ == 0) taken_ = gridDim.x + atomicAdd(&ticket_->taken, 1);
  }
  __device__ uint32_t Broadcast(uint32_t taken) const {
    if (thread_ == 0) ring_.control.taken = taken;
    MeetCopiers();
    return ring_.control.taken;
  }
  // The last block to leave makes the ticket new.
  __device__ void Leave() const {
    __threadfence();
    if (atomicAdd(&ticket_->finished, 1) + 1 < gridDim.x) return;
    ticket_->taken = 0;
    ticket_->finished = 0;
  }

  // Of this thread's rows, for FindOffsets.
  __device__ void LoadMasks(const TilePiece<Config>& piece, int word) {
#pragma unroll
    for (int i = 0; i < kLookUps; ++i) {
      const int64_t position = piece.first_row + i * Config::kCopyThreads + thread_;
      rows_[i] = args_.ordered ? 0 : OutputRow(args_, piece.split, position);
      masks_[i] = RowMask(args_, piece.split, rows_[i], position, word);
    }
  }

  // The offsets that the rows have. Every copier has finished with the segment before when this
  // returns.
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

  // The share-th of `shares` ranges of the set bits.
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

  // All of the segment, so that the table's latency is met once.
  __device__ void LoadEntries(const TilePiece<Config>& piece, int word, uint32_t left) {
    const int64_t first_offset = args_.split_ptr[piece.split] + word * 32;
    const int64_t stride = EntryStride(args_);
#pragma unroll
    for (int i = 0; i < kLookUps; ++i) {
      const int row = i * Config::kCopyThreads + thread_;
      const int64_t position = piece.first_row + row;
      const bool valid = args_.ordered ? position < args_.num_outputs : rows_[i] >= 0;
      const int32_t* entries = EntriesOf(args_, rows_[i], position) + first_offset * stride;
      for (uint32_t bits = left; bits != 0; bits &= bits - 1) {
        const int bit = __ffs(bits) - 1;
        int32_t* to = &ring_.control.entries[bit][row];
        if (valid) {
          CopyAsync4(SharedAddress(to), entries + bit * stride);
        } else {
          *to = -1;
        }
      }
    }
    CommitCopies();
    WaitCopies<0>();
    MeetCopiers();
  }

  __device__ void CopySegment(const TilePiece<Config>& piece, const Segment& segment) {
    const int first_offset = args_.split_ptr[piece.split] + segment.word * 32;
    const bool last_word = segment.word + 1 == piece.words;
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
    ArriveExpecting(full, Config::kAtoms * Config::kAtomBytes);
#pragma unroll
    for (int a = 0; a < Config::kAtoms; ++a) {
      CopyBox(ring_.Weights(slot_.slot) + a * Config::kAtomBytes, weights_, channel + a * 64, depth,
              offset, full);
    }
  }

  // One instruction, which the compiler does not find.
  static __device__ uint64_t MultiplyAdd(uint32_t a, uint32_t b, uint64_t c) {
    uint64_t sum;
    asm("mad.wide.u32 %0, %1, %2, %3;\n" : "=l"(sum) : "r"(a), "r"(b), "l"(c));
    return sum;
  }

  __device__ void CopyInputs(const Segment& segment, int bit, int depth) const {
    const int row = thread_ / kRowVectors * kRowsAtOnce, v = thread_ % kRowVectors;
    if (args_.c_in - depth <= Config::kDepth / 2 && v >= kRowVectors / 2) return;
    const int c = depth + v * kVector;
    const bool inside = c < args_.c_in;
    const uint32_t row_bytes = args_.c_in * sizeof(Element);
    const uint64_t input = reinterpret_cast<uint64_t>(args_.input) + c * sizeof(Element);
    const uint32_t slot = ring_.Inputs(slot_.slot);
    const int32_t* entries = ring_.control.entries[bit] + row;
#pragma unroll
    for (int g = 0; g < Config::kGroups; ++g) {
      if ((segment.group[g] >> bit & 1) == 0) continue;
#pragma unroll
      for (int r = g * 64; r < g * 64 + 64; r += kRowStep) {
        const int4 four = *reinterpret_cast<const int4*>(entries + r);
        const int32_t from[kRowsAtOnce] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < kRowsAtOnce; ++i) {
          const uint64_t row_input = MultiplyAdd(from[i], row_bytes, input);
          CopyAsync16(slot + to_[i] + r * Config::kRowBytes,
                      reinterpret_cast<const void*>(row_input), inside && from[i] >= 0);
        }
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
  int32_t rows_[kLookUps];  // output rows, where the table goes by them
  uint32_t taken_ = 0;      // tile, of the first thread
  RingSlot<Config::kStages> slot_;
  RingSlot<Config::kSegments> segment_slot_;
};

// A warpgroup that multiplies.
template <typename Config>
class TileMultiplier {
  using Element = typename Config::Element;
  using Segment = typename Config::Segment;

 public:
  __device__ TileMultiplier(const ImplicitGemmArgs& args, CudaTicket* ticket,
                            const WarpgroupRing<Config>& ring)
      : args_(args), ticket_(ticket), ring_(ring), group_(__shfl_sync(~0u, threadIdx.x / 128, 0)) {
    rows_ = SwizzledTile(ring.Inputs(0) + group_ * 64 * Config::kRowBytes, 16);
    weights_ = SwizzledTile(ring.Weights(0), Config::kAtomBytes);
  }

  __device__ void Run() {
    const uint32_t pieces = static_cast<uint32_t>(TilePiece<Config>::Count(args_));
    for (;;) {
      Segment segment = Receive();
      if (segment.piece >= pieces) return;
      const TilePiece<Config> piece(args_, segment.piece);
      const int64_t position = piece.first_row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
      const int32_t rows[2] = {OutputRow(args_, piece.split, position),
                               OutputRow(args_, piece.split, position + 8)};
#pragma unroll
      for (int i = 0; i < Config::kChannels / 2; ++i) sum_[i] = 0;
      for (;;) {
        MultiplySegment(segment);
        if (segment.word + 1 == piece.words) break;
        segment = Receive();
      }
      if (segment.shares > 1 && !AddShares(piece, segment.shares)) continue;
      StoreTile<Element, 2, Config::kChannels / 8>(
          args_, piece.part, rows, piece.channel, [this](int r, int n) {
            return float2{sum_[n * 4 + r * 2], sum_[n * 4 + r * 2 + 1]};
          });
    }
  }

 private:
  // Leaves this piece's sums for the others; the warpgroup that comes last has them all then, added
  // up in the order of the shares whichever came last. True for that one.
  __device__ bool AddShares(const TilePiece<Config>& piece, int shares) {
    constexpr int kThreads = Config::kGroups * 128, kVectors = Config::kChannels / 8;
    float4* const sums = reinterpret_cast<float4*>(args_.shared_sums) +
                         int64_t{piece.tile} * args_.shares * kVectors * kThreads + threadIdx.x;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      sums[(piece.share * kVectors + v) * kThreads] = {sum_[v * 4], sum_[v * 4 + 1],
                                                       sum_[v * 4 + 2], sum_[v * 4 + 3]};
    }
    __threadfence();
    MeetWarpgroup();
    uint32_t& last = ring_.control.last[group_];
    if (threadIdx.x % 128 == 0) {
      uint32_t& arrived = ticket_->arrived[piece.tile * Config::kGroups + group_];
      last = atomicAdd(&arrived, 1) + 1 == shares;
      if (last != 0) arrived = 0;
      __threadfence();
    }
    MeetWarpgroup();
    if (last == 0) return false;
#pragma unroll
    for (int i = 0; i < Config::kChannels / 2; ++i) sum_[i] = 0;
    for (int share = 0; share < shares; ++share) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const float4 more = __ldcg(sums + (share * kVectors + v) * kThreads);
        sum_[v * 4] += more.x;
        sum_[v * 4 + 1] += more.y;
        sum_[v * 4 + 2] += more.z;
        sum_[v * 4 + 3] += more.w;
      }
    }
    return true;
  }

  __device__ void MeetWarpgroup() const {
    constexpr int kFirstBarrier = 2;
    asm volatile("bar.sync %0, 128;\n" ::"r"(kFirstBarrier + group_) : "memory");
  }

  __device__ Segment Receive() {
    AwaitPhase(ring_.SegmentFull(segment_slot_.slot), segment_slot_.parity);
    const Segment segment = ring_.control.segments[segment_slot_.slot];
    Release(ring_.SegmentEmpty(segment_slot_.slot));
    segment_slot_.Advance();
    return segment;
  }

  __device__ void MultiplySegment(const Segment& segment) {
    // The same for all lanes, as the compiler should know: what follows then costs the lanes less.
    const uint32_t mine = __reduce_or_sync(~0u, Mine(segment));
    for (uint32_t left = __reduce_or_sync(~0u, segment.offsets); left != 0; left &= left - 1) {
      const bool wanted = (mine & left & -left) != 0;
      for (int depth = args_.c_in; depth > 0; depth -= Config::kDepth) {
        AwaitPhase(ring_.Full(slot_.slot), slot_.parity);
        if (wanted) {
          if (depth > Config::kDepth / 2) {
            Multiply<Config::kDepth>();
          } else {
            Multiply<Config::kDepth / 2>();
          }
        }
        Release(ring_.Empty(slot_.slot));
        slot_.Advance();
      }
    }
  }

  __device__ uint32_t Mine(const Segment& segment) const {
    uint32_t mine = segment.group[0];
#pragma unroll
    for (int g = 1; g < Config::kGroups; ++g) {
      if (g == group_) mine = segment.group[g];
    }
    return mine;
  }

  // This warp has finished with what the barrier guards.
  __device__ void Release(uint32_t barrier) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) Arrive(barrier);
  }

  // Channels past the input's are zeros. Waits for the products: the compiler would make those that
  // are under way across a branch wait one for the other. Other warpgroups fill the gap.
  template <int kDepth>
  __device__ void Multiply() {
    const uint32_t slot = slot_.slot * (Config::kStageBytes / 16);
    const uint32_t rows = rows_ + slot, weights = weights_ + slot;
    ShowToProducts();
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      WarpgroupMma<Element, Config::kChannels>(sum_, rows + k * (32 / 16),
                                               weights + k * Config::kRowBytes);
    }
    CommitProducts();
    WaitProducts<0>();
  }

  const ImplicitGemmArgs& args_;
  CudaTicket* ticket_;
  const WarpgroupRing<Config>& ring_;
  int group_;
  uint32_t rows_, weights_;  // tiles of the first slot
  RingSlot<Config::kStages> slot_;
  RingSlot<Config::kSegments> segment_slot_;
  float sum_[Config::kChannels / 2];
};

#endif  // VOXCONV_WARPGROUP_MMA

// Grid: any number of blocks up to that of the tiles, which they share out.
template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerMultiprocessor)
    ImplicitGemmWarpgroup(const __grid_constant__ ImplicitGemmArgs args,
                          const __grid_constant__ CUtensorMap weights, CudaTicket* ticket) {
#if VOXCONV_WARPGROUP_MMA
  extern __shared__ __align__(1024) char shared[];
  WarpgroupRing<Config> ring(shared);
  ring.Init();
  if (threadIdx.x >= Config::kGroups * 128) {
    TileCopier<Config>(args, weights, ticket, ring).Run();
  } else {
    TileMultiplier<Config>(args, ticket, ring).Run();
  }
#endif
}

template <typename Config>
absl::Status LaunchWarpgroup(const ImplicitGemmArgs& args, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(
      const CUtensorMap weights,
      DescribeBoxes(args.weights, args.num_offsets, args.c_in, args.ld_weights, Config::kDepth));
  VOXCONV_CHECK(args.k_parts == 1 && args.shared_tiles * Config::kGroups <= CudaTicket::kMaxShared);
  CudaBackend& cuda = AsCuda(context);
  const int64_t blocks = int64_t{cuda.num_multiprocessors()} * Config::kBlocksPerMultiprocessor;
  const dim3 grid(static_cast<unsigned>(std::min(blocks, TilePiece<Config>::Count(args))));
  VOXCONV_LAUNCH(ImplicitGemmWarpgroup<Config>, grid, Config::kThreads, Config::kSharedBytes,
                 context, args, weights, cuda.ticket(*context.stream));
  return absl::OkStatus();
}

template <typename Element>
absl::Status LaunchWarpgroupOf(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                               const ExecutionContext& context) {
  const bool large = tile.rows == 256;
  VOXCONV_CHECK(large || tile.rows == 128);
  switch (tile.channels) {
    case 64:
      return large ? LaunchWarpgroup<WarpgroupConfig<Element, 256, 64, 4, 1>>(args, context)
                   : LaunchWarpgroup<WarpgroupConfig<Element, 128, 64, 3, 2>>(args, context);
    case 96:
      return large ? LaunchWarpgroup<WarpgroupConfig<Element, 256, 96, 4, 1>>(args, context)
                   : LaunchWarpgroup<WarpgroupConfig<Element, 128, 96, 3, 2>>(args, context);
    case 128:
      return large ? LaunchWarpgroup<WarpgroupConfig<Element, 256, 128, 4, 1>>(args, context)
                   : LaunchWarpgroup<WarpgroupConfig<Element, 128, 128, 3, 2>>(args, context);
    default:
      VOXCONV_CHECK(tile.channels == 256 && !large);
      return LaunchWarpgroup<WarpgroupConfig<Element, 128, 256, 4, 1>>(args, context);
  }
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_KERNEL_CUH_
