// SPDX-License-Identifier: Apache-2.0
// Output-stationary implicit GEMM with products of whole warpgroups (wgmma), for f16, bf16, tf32
// and f32 on compute capability 9.0.
//
// 64 rows (the M of one wgmma) share one set of offsets. The tensor cores read their operands from
// shared memory. In tf32 the inputs go through registers, because a tensor core would cut off the
// bits that we round.
//
// In f32, x = x_0 + x_1 + e, where x_0 and x_1 are tf32 numbers and |e| is at most 2^-22 |x|. The
// kernel adds up x_0 w_0 + x_1 w_0 + x_0 w_1 and leaves out x_1 w_1, which is as small as the
// errors e. It adds the products of one step on the tensor cores, which cut sums off, and all steps
// by f32 additions, which round to nearest. Numbers that are not finite are split so that the sums
// are those of plain multiply-adds (SplitFloat).
//
// Different warps copy and multiply. The last warps of a block gather the inputs, and the tensor
// memory accelerator copies the weights for them. Each warpgroup before them multiplies 64 rows by
// all channels of the block. The two kinds of warps meet only at the barriers of a ring of slots. A
// block takes one piece of work after the other. It stores one piece while it copies for the next.
// Where registers allow, another warp finds the work ahead of the warps that gather (TileScout).
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_KERNEL_CUH_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_KERNEL_CUH_

#include <algorithm>
#include <cstdint>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/backends/cuda/tensor_map.h"
#include "voxconv/dataflows/implicit_gemm/warpgroup_config.cuh"
#include "voxconv/dataflows/implicit_gemm/warpgroup_copier.cuh"

namespace voxconv {

#if VOXCONV_WARPGROUP_MMA

// One warpgroup that multiplies 64 rows of a block's tiles and stores the sums.
template <typename Config>
class TileMultiplier {
  using Element = typename Config::Element;

  // What a warpgroup needs of a segment.
  struct Segment {
    uint32_t piece;
    int32_t word, shares;
    uint32_t offsets;
    uint32_t mine;  // bits of the word that this group of 64 rows has
  };

 public:
  __device__ TileMultiplier(const ImplicitGemmArgs& args, CudaTicket* ticket,
                            const WarpgroupRing<Config>& ring)
      : args_(args), ticket_(ticket), ring_(ring), group_(__shfl_sync(~0u, threadIdx.x / 128, 0)) {
    const uint32_t inputs = ring.Inputs(0) + group_ * 64 * Config::kRowBytes;
    if constexpr (Config::kWide) {
      // Lane l reads row l % 16 of the warp's. The swizzle is an exclusive or with bits of the
      // lane.
      const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 16;
      rows_ = inputs + row * Config::kRowBytes + ((threadIdx.x % 32 / 16) ^ (row & 7)) * 16;
    } else {
      rows_ = SwizzledTile(inputs, 16);
    }
    weights_ = SwizzledTile(ring.Weights(0), Config::kBoxBytes);
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
      AwaitEarlierKernels();  // for a tile without pairs, the copiers may not have waited yet
      if (segment.shares > 1 && !AddShares(piece, segment.shares)) continue;
      StoreTile<Element, 2, Config::kChannels / 8>(
          args_, piece.split, rows, piece.channel, [this](int r, int n) {
            return float2{sum_[n * 4 + r * 2], sum_[n * 4 + r * 2 + 1]};
          });
    }
  }

 private:
  static constexpr int kSumThreads = Config::kGroups * 128, kSumVectors = Config::kChannels / 8;

  // Where share number `share` of a shared tile leaves its sums.
  __device__ float4* SumsOf(const TilePiece<Config>& piece, int share) const {
    return reinterpret_cast<float4*>(args_.shared_sums) +
           (int64_t{piece.tile} * args_.shares + share) * kSumVectors * kSumThreads + threadIdx.x;
  }

  __device__ void WriteSums(float4* sums) const {
#pragma unroll
    for (int v = 0; v < kSumVectors; ++v) {
      sums[v * kSumThreads] = {sum_[v * 4], sum_[v * 4 + 1], sum_[v * 4 + 2], sum_[v * 4 + 3]};
    }
    __threadfence();
  }

  __device__ void AddSums(const float4* sums) {
#pragma unroll
    for (int v = 0; v < kSumVectors; ++v) {
      const float4 more = __ldcg(sums + v * kSumThreads);
      sum_[v * 4] += more.x;
      sum_[v * 4 + 1] += more.y;
      sum_[v * 4 + 2] += more.z;
      sum_[v * 4 + 3] += more.w;
    }
  }

  // Adds up the sums of a tile's shares. Returns true for the warpgroup that then has them all.
  // Loads of sums stand once and in a loop that is not unrolled: registers are scarce.
  __device__ bool AddShares(const TilePiece<Config>& piece, int shares) {
    uint32_t* const arrived = &ticket_->arrived[piece.tile * Config::kGroups + group_];
    int first = 0, end = shares;  // the shares to add
    if (shares == 2) {
      if (!AwaitOther(piece, arrived)) return false;
      first = 1 - piece.share;
      end = first + 1;
    } else {
      if (!WriteAsLast(piece, shares, arrived)) return false;
#pragma unroll
      for (int i = 0; i < Config::kChannels / 2; ++i) sum_[i] = 0;
    }
#pragma unroll 1
    for (int share = first; share < end; ++share) AddSums(SumsOf(piece, share));
    return true;
  }

  // Writes this piece's sums to shared_sums. Returns true for the warpgroup that comes last. It is
  // to add all shares in their order, so that the result is deterministic.
  __device__ bool WriteAsLast(const TilePiece<Config>& piece, int shares, uint32_t* arrived) {
    WriteSums(SumsOf(piece, piece.share));
    MeetWarpgroup();
    uint32_t& last = ring_.control.last[group_];
    if (threadIdx.x % 128 == 0) {
      last = atomicAdd(arrived, 1) + 1 == shares;
      if (last != 0) *arrived = 0;
      __threadfence();
    }
    MeetWarpgroup();
    return last != 0;
  }

  // For two shares. A sum of two numbers does not depend on their order, so that the warpgroup that
  // comes second may add the other's sums to its own, which it need not write. Returns true for it,
  // once the other has written its sums. The other waits for nothing meanwhile.
  __device__ bool AwaitOther(const TilePiece<Config>& piece, uint32_t* arrived) {
    constexpr uint32_t kBothCameOneWrote = 3;
    uint32_t& before = ring_.control.last[group_];
    if (threadIdx.x % 128 == 0) before = atomicAdd(arrived, 1);
    MeetWarpgroup();
    if (before == 0) {
      WriteSums(SumsOf(piece, piece.share));
      MeetWarpgroup();
      if (threadIdx.x % 128 == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
      }
      return false;
    }
    if (threadIdx.x % 128 == 0) {
      while (*static_cast<volatile uint32_t*>(arrived) != kBothCameOneWrote) {
      }
      __threadfence();
      *arrived = 0;
    }
    MeetWarpgroup();
    return true;
  }

  __device__ void MeetWarpgroup() const {
    constexpr int kFirstBarrier = 2;
    asm volatile("bar.sync %0, 128;\n" ::"r"(kFirstBarrier + group_) : "memory");
  }

  __device__ Segment Receive() {
    AwaitPhase(ring_.SegmentFull(segment_slot_.slot), segment_slot_.parity);
    const typename Config::Segment& sent = ring_.control.segments[segment_slot_.slot];
    const Segment segment = {sent.piece, sent.word, sent.shares, sent.offsets, sent.group[group_]};
    Release(ring_.SegmentEmpty(segment_slot_.slot));
    segment_slot_.Advance();
    return segment;
  }

  __device__ void MultiplySegment(const Segment& segment) {
    // The reductions tell the compiler that the values are the same for all lanes. It then makes
    // cheaper code.
    const uint32_t mine = __reduce_or_sync(~0u, segment.mine);
    for (uint32_t left = __reduce_or_sync(~0u, segment.offsets); left != 0; left &= left - 1) {
      const bool wanted = (mine & left & -left) != 0;
      for (int depth = args_.c_in; depth > 0; depth -= Config::kDepth) {
        AwaitPhase(ring_.Full(slot_.slot), slot_.parity);
        if (wanted) MultiplyParts(depth);
        Release<Config::kReleases>(ring_.Empty(slot_.slot));
        slot_.Advance();
      }
    }
  }

  // Tells the barrier that this warp has finished with what the barrier guards. kLanes lanes do so.
  template <int kLanes = 1>
  __device__ void Release(uint32_t barrier) const {
    __syncwarp();
    if (threadIdx.x % 32 < kLanes) Arrive(barrier);
  }

  // Multiplies the parts of the current slot that have some of the `depth` channels that are left.
  template <int kParts = Config::kParts>
  __device__ void MultiplyParts(int depth) {
    if constexpr (kParts > 1) {
      if (depth <= (kParts - 1) * Config::kPartDepth) return MultiplyParts<kParts - 1>(depth);
    }
    Multiply<kParts * Config::kPartDepth>();
  }

  // Multiplies the current slot. Channels past the input's are zeros. This function waits for its
  // products, because the compiler serialises products that are in flight across a branch. Other
  // warpgroups use the tensor cores meanwhile.
  template <int kDepth>
  __device__ void Multiply() {
    constexpr int kProducts = kDepth / Config::kProductDepth;
    const uint32_t weights = weights_ + slot_.slot * (Config::kStageBytes / 16);
    if constexpr (Config::kSplits) {
      MultiplySplit<kProducts>(rows_ + slot_.slot * Config::kStageBytes, weights);
    } else if constexpr (Config::kWide) {
      constexpr int kHeld = std::min(kProducts, Config::kHeldProducts);
      const uint32_t rows = rows_ + slot_.slot * Config::kStageBytes;
#pragma unroll
      for (int k = 0; k < kProducts; k += kHeld) {
        MultiplyHeld<kHeld>(rows ^ (k * 32), weights + k * (32 / 16));
      }
    } else {
      constexpr int kSlabProducts = Config::kRowBytes / 32;
      const uint32_t rows = rows_ + slot_.slot * (Config::kStageBytes / 16);
      ShowToProducts();
      BeginProducts();
#pragma unroll
      for (int k = 0; k < kProducts; ++k) {
        const int slab = k / kSlabProducts, in_slab = k % kSlabProducts;
        WarpgroupMma<Element, Config::kChannels, false, Config::kRowBytes>(
            sum_, rows + slab * (Config::kSlabBytes / 16) + in_slab * (32 / 16),
            weights + k * (Config::kProductDepth * Config::kBoxRowBytes / 16));
      }
      CommitProducts();
      WaitProducts<0>();
    }
  }

  // Rounds the inputs of kHeld products in registers, and multiplies them.
  template <int kHeld>
  __device__ void MultiplyHeld(uint32_t rows, uint32_t weights) {
    uint32_t a[kHeld][4];
#pragma unroll
    for (int k = 0; k < kHeld; ++k) LoadMatrices(rows ^ (k * 32), a[k]);
#pragma unroll
    for (auto& fragment : a) {
#pragma unroll
      for (uint32_t& value : fragment) value = RoundToTf32(value);
    }
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      WarpgroupMmaTf32<Config::kChannels>(sum_, a[k], weights + k * (32 / 16));
    }
    CommitProducts();
    WaitProducts<0>();
  }

  // Multiplies a step in f32.
  template <int kProducts>
  __device__ void MultiplySplit(uint32_t rows, uint32_t weights) {
    constexpr uint32_t kRemainders = Config::kBoxBytes / 16;
    float step[Config::kChannels / 2];
#pragma unroll
    for (int k = 0; k < kProducts; ++k) {
      uint32_t inputs[4];
      LoadMatrices(rows ^ (k * 32), inputs);
      const SplitFragment x(inputs);
      const uint32_t w = weights + k * (32 / 16);
      BeginProducts();
      if (k == 0) {
        WarpgroupMmaTf32<Config::kChannels, false>(step, x.rest, w);
      } else {
        WarpgroupMmaTf32<Config::kChannels>(step, x.rest, w);
      }
      WarpgroupMmaTf32<Config::kChannels>(step, x.factor, w + kRemainders);
      WarpgroupMmaTf32<Config::kChannels>(step, x.whole, w);
      CommitProducts();
      WaitProducts<0>();
    }
#pragma unroll
    for (int i = 0; i < Config::kChannels / 2; ++i) sum_[i] += step[i];
  }

  const ImplicitGemmArgs& args_;
  CudaTicket* ticket_;
  const WarpgroupRing<Config>& ring_;
  int group_;
  uint32_t rows_;     // the first slot's inputs: a descriptor, or this lane's address if kWide
  uint32_t weights_;  // descriptor of the first slot's weights
  RingSlot<Config::kStages> slot_;
  RingSlot<Config::kSegments> segment_slot_;
  float sum_[Config::kChannels / 2];
};

#endif  // VOXCONV_WARPGROUP_MMA

// Grid: any number of blocks, up to the number of pieces. The blocks share the pieces.
template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerMultiprocessor)
    ImplicitGemmWarpgroup(const __grid_constant__ ImplicitGemmArgs args,
                          const __grid_constant__ CUtensorMap weights, CudaTicket* ticket) {
#if VOXCONV_WARPGROUP_MMA
  extern __shared__ __align__(1024) char shared[];
  LetNextKernelIn();
  WarpgroupRing<Config> ring(shared);
  ring.Init();
  if (!args.settled) AwaitEarlierKernels();
  const int copier = static_cast<int>(threadIdx.x) - Config::kGroups * 128;
  if (copier < 0) {
    TileMultiplier<Config>(args, ticket, ring).Run();
  } else if (!Config::kScouts || copier < Config::kCopyThreads) {
    InputCopier<Config>(args, weights, ticket, ring).Run();
  } else if constexpr (Config::kScouts) {
    if (!Config::kWeightWarp || copier >= Config::kCopyThreads + 32) {
      TileScout<Config>(args, ticket, ring).Run();
    } else if (copier == Config::kCopyThreads) {
      WeightCopier<Config>(args, weights, ring).Run();
    }
  }
#endif
}

template <typename Config>
absl::Status LaunchWarpgroup(const ImplicitGemmArgs& args, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const CUtensorMap weights,
                           DescribeBoxes(args.weights, args.num_offsets * (Config::kSplits ? 2 : 1),
                                         Config::kWide ? args.c_out : args.c_in, args.ld_weights,
                                         sizeof(typename Config::Element), Config::kBoxRows));
  VOXCONV_CHECK(args.k_parts == 1 && args.shared_tiles * Config::kGroups <= CudaTicket::kMaxShared);
  CudaBackend& cuda = AsCuda(context);
  const int64_t blocks = int64_t{cuda.num_multiprocessors()} * Config::kBlocksPerMultiprocessor;
  const dim3 grid(static_cast<unsigned>(std::min(blocks, TilePiece<Config>::Count(args))));
  VOXCONV_LAUNCH_EARLY(ImplicitGemmWarpgroup<Config>, grid, Config::kThreads, Config::kSharedBytes,
                       context, args, weights, cuda.ticket(*context.stream));
  return absl::OkStatus();
}

// For the 16-bit elements.
template <typename Element>
absl::Status LaunchWarpgroupOf(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                               const ExecutionContext& context) {
  const bool tall = tile.rows == 192;
  VOXCONV_CHECK(tall || tile.rows == 128);
  switch (tile.channels) {
    case 64:
      VOXCONV_CHECK(!tall);
      return LaunchWarpgroup<WarpgroupConfig<Element, 128, 64, 4, 2>>(args, context);
    case 96:
      return tall ? LaunchWarpgroup<WarpgroupConfig<Element, 192, 96, 3, 1>>(args, context)
                  : LaunchWarpgroup<WarpgroupConfig<Element, 128, 96, 2, 2>>(args, context);
    case 128:
      return tall ? LaunchWarpgroup<WarpgroupConfig<Element, 192, 128, 5, 1>>(args, context)
                  : LaunchWarpgroup<WarpgroupConfig<Element, 128, 128, 3, 2>>(args, context);
    default:
      VOXCONV_CHECK(!tall && tile.channels == 256);
      return LaunchWarpgroup<WarpgroupConfig<Element, 128, 256, 4, 1>>(args, context);
  }
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_KERNEL_CUH_
