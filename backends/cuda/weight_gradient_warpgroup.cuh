// SPDX-License-Identifier: Apache-2.0
// The kernel of weight_gradient_mma.h for 16-bit elements on compute capability 9.0: a block sums
// the products of a range of pairs for a tile of 128 input channels and kOut output channels.
//
// Different warps copy and multiply. The last warps of a block gather the rows of a step. Each of
// the two warpgroups before them multiplies 64 input channels by all output channels of the tile.
// The two kinds of warps meet at the barriers of a ring of slots alone, so the copies of a step go
// on while the sums of the offset before are stored.
#ifndef VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_WARPGROUP_CUH_
#define VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_WARPGROUP_CUH_

#include <algorithm>
#include <cstdint>
#include <memory>

#include "voxconv/backends/cuda/async_barrier.cuh"
#include "voxconv/backends/cuda/copy_chunk.cuh"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/backends/cuda/tensor_core.cuh"
#include "voxconv/backends/cuda/warpgroup_mma.cuh"
#include "voxconv/backends/cuda/weight_gradient_mma.h"
#include "voxconv/backends/cuda/weight_gradient_steps.cuh"

namespace voxconv {
namespace range_sums {

template <typename ElementType, int kOutValue>
struct WarpgroupTile {
  using Element = ElementType;
  static constexpr int kIn = 128, kOut = kOutValue;
  static constexpr int kStepPairs = 64;
  static constexpr int kGroups = kIn / 64;  // warpgroups that multiply
  static constexpr int kCopyWarps = kOut == 256 ? 4 : 6;
  static constexpr int kThreads = kGroups * 128 + kCopyWarps * 32;

  // A box has 64 channels of a step's rows. Its rows of 128 bytes are swizzled for wgmma.
  static constexpr int kRowBytes = 128, kBoxChannels = kRowBytes / sizeof(Element);
  static constexpr int kBoxBytes = kStepPairs * kRowBytes;
  static constexpr int kInBoxes = kIn / kBoxChannels;
  static constexpr int kOutBoxes = (kOut + kBoxChannels - 1) / kBoxChannels;
  static constexpr int kStageBytes = (kInBoxes + kOutBoxes) * kBoxBytes;
  // As many as fit beside the barriers.
  static constexpr int kStages = (224 << 10) / kStageBytes;

  // Otherwise a warp could wait for a phase of a slot whose phase before has not begun.
  static_assert(kCopyWarps <= kStages);

  struct Barriers {
    uint64_t full[kStages], empty[kStages];
  };
  static constexpr int kSharedBytes = kStages * kStageBytes + static_cast<int>(sizeof(Barriers));
};

#if VOXCONV_WARPGROUP_MMA

// Shared-memory addresses of the slots and their barriers.
template <typename Tile>
struct RowRing {
  __device__ explicit RowRing(char* shared)
      : slots(SharedAddress(shared)), barriers(slots + Tile::kStages * Tile::kStageBytes) {}

  __device__ void Init() const {
    if (threadIdx.x == 0) {
      for (int s = 0; s < Tile::kStages; ++s) {
        InitBarrier(Full(s), 32);
        InitBarrier(Empty(s), Tile::kGroups * 4);
      }
      FenceBarriers();
    }
    __syncthreads();
  }
  __device__ uint32_t Slot(int slot) const { return slots + slot * Tile::kStageBytes; }
  __device__ uint32_t Full(int slot) const { return barriers + slot * 8; }
  __device__ uint32_t Empty(int slot) const { return barriers + (Tile::kStages + slot) * 8; }

  uint32_t slots, barriers;
};

// One warp that gathers rows. The warps take turns at the steps, so each of them finds the pairs of
// a step while the others copy. Eight lanes copy a row of a box, four rows at a time.
template <typename Tile>
class RowCopier {
  using Element = typename Tile::Element;
  static constexpr int kColumns = Tile::kRowBytes / kChunkBytes;
  static constexpr int kRowsAtOnce = 32 / kColumns;

 public:
  __device__ RowCopier(const RangeOperands& operands, int64_t in, int64_t out,
                       const RowRing<Tile>& ring)
      : operands_(operands), ring_(ring), lane_(threadIdx.x % 32) {
    const int column = lane_ % kColumns, channel = column * (kChunkBytes / sizeof(Element));
    x_ = static_cast<const Element*>(operands.x) + in + channel;
    dy_ = static_cast<const Element*>(operands.dy) + out + channel;
    in_left_ = static_cast<int>(operands.c_in - in) - channel;
    out_left_ = static_cast<int>(operands.c_out - out) - channel;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = lane_ / kColumns + i * kRowsAtOnce;
      to_[i] = row * Tile::kRowBytes + (column ^ row) * kChunkBytes;
    }
  }

  // `steps` is at the range's first step. Copies every kCopyWarps-th step, from step `warp` on. The
  // pairs of the next one are loaded before the rows of this one.
  __device__ void Run(RangeSteps steps, int warp) {
    steps.Advance(warp);
    slot_.Advance(warp);
    Pairs pairs = Find(steps);
    while (!steps.done()) {
      steps.Advance(Tile::kCopyWarps);
      const Pairs next = Find(steps);
      AwaitPhase(ring_.Empty(slot_.slot), slot_.parity ^ 1);
      const uint32_t slot = ring_.Slot(slot_.slot);
      Copy<Tile::kInBoxes>(slot, x_, pairs.in, operands_.c_in, in_left_);
      Copy<Tile::kOutBoxes>(slot + Tile::kInBoxes * Tile::kBoxBytes, dy_, pairs.out,
                            operands_.c_out, out_left_);
      ArriveAfterCopies(ring_.Full(slot_.slot));
      slot_.Advance(Tile::kCopyWarps);
      pairs = next;
    }
  }

 private:
  // Pairs lane and lane + 32 of a step; -1 past the last one.
  struct Pairs {
    int32_t in[2], out[2];
  };
  __device__ Pairs Find(const RangeSteps& steps) const {
    Pairs pairs;
    const int count = steps.done() ? 0 : steps.pairs();
    const int64_t first = steps.done() ? 0 : steps.first_pair();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int pair = lane_ + i * 32;
      pairs.in[i] = pair < count ? operands_.in[first + pair] : -1;
      pairs.out[i] = pair < count ? operands_.out[first + pair] : -1;
    }
    return pairs;
  }

  // Queues the copies of one operand's boxes. Pairs that are not there become zeros. Channels past
  // the last one are left as they are: nobody stores their sums.
  template <int kBoxes>
  __device__ void Copy(uint32_t to, const Element* from, const int32_t (&rows)[2], int64_t channels,
                       int left) const {
#pragma unroll
    for (int first = 0; first < Tile::kStepPairs; first += kRowsAtOnce) {
      const int pair = first % 32 + lane_ / kColumns;
      const int32_t row = __shfl_sync(~0u, rows[first / 32], pair);
      const bool valid = row >= 0;
      const Element* const at = from + (valid ? row : 0) * channels;
      const uint32_t row_to = to + to_[first / kRowsAtOnce % 2] + first / 8 * 8 * Tile::kRowBytes;
#pragma unroll
      for (int b = 0; b < kBoxes; ++b) {
        if (b * Tile::kBoxChannels >= left) continue;
        CopyAsync16(row_to + b * Tile::kBoxBytes, at + b * Tile::kBoxChannels, valid);
      }
    }
  }

  const RangeOperands& operands_;
  const RowRing<Tile>& ring_;
  int lane_;
  const Element *x_, *dy_;  // this lane's element of row 0 in the first box
  int in_left_, out_left_;  // channels from this element to the last
  uint32_t to_[2];          // where the rows of even and of odd turns go, relative to eight rows
  RingSlot<Tile::kStages> slot_;
};

// A warpgroup that multiplies, and stores the sums of each offset.
template <typename Tile>
class RowMultiplier {
 public:
  __device__ RowMultiplier(const RangeOperands& operands, int64_t in, int64_t out,
                           const RowRing<Tile>& ring)
      : operands_(operands),
        ring_(ring),
        group_(__shfl_sync(~0u, threadIdx.x / 128, 0)),
        in_(in + group_ * 64),
        out_(out) {
    a_ = SwizzledTile(ring.Slot(0) + group_ * Tile::kBoxBytes, Tile::kBoxBytes);
    b_ = SwizzledTile(ring.Slot(0) + Tile::kInBoxes * Tile::kBoxBytes, Tile::kBoxBytes);
  }

  __device__ void Run(RangeSteps steps, int range) {
    const int64_t size = operands_.c_in * operands_.c_out;
    while (!steps.done()) {
#pragma unroll
      for (float& sum : sums_) sum = 0;
      const int offset = steps.offset();
      do {
        Multiply();
        steps.Advance(1);
      } while (!steps.done() && steps.offset() == offset);
      Store(operands_.sums + int64_t{range + offset} * size);
    }
  }

 private:
  // Adds the products of the next step. Waits for them, because the compiler serialises products
  // that are in flight across a branch. The other warpgroup uses the tensor cores meanwhile.
  __device__ void Multiply() {
    AwaitPhase(ring_.Full(slot_.slot), slot_.parity);
    const uint32_t slot = slot_.slot * (Tile::kStageBytes / 16);
    ShowToProducts();
    BeginProducts();
#pragma unroll
    for (int k = 0; k < Tile::kStepPairs / 16; ++k) {
      const uint32_t rows = slot + k * Tile::kRowBytes;  // 16 rows, in units of 16 bytes
      WarpgroupMma<typename Tile::Element, Tile::kOut, true>(sums_, a_ + rows, b_ + rows);
    }
    CommitProducts();
    WaitProducts<0>();
    __syncwarp();
    if (threadIdx.x % 32 == 0) Arrive(ring_.Empty(slot_.slot));
    slot_.Advance();
  }

  // Each thread has two rows of the warpgroup's 64, and two neighbouring columns of every 8.
  __device__ void Store(float* to) const {
    const int64_t first = in_ + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    const int64_t out = out_ + threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row = first + half * 8;
      if (row >= operands_.c_in) continue;
      float* const at = to + row * operands_.c_out + out;
#pragma unroll
      for (int n = 0; n < Tile::kOut / 8; ++n) {
        if (out + n * 8 >= operands_.c_out) continue;  // c_out is a multiple of 8
        *reinterpret_cast<float2*>(at + n * 8) = {sums_[n * 4 + half * 2],
                                                  sums_[n * 4 + half * 2 + 1]};
      }
    }
  }

  const RangeOperands& operands_;
  const RowRing<Tile>& ring_;
  int group_;
  int64_t in_, out_;  // the first channels of its sums
  uint32_t a_, b_;    // descriptors of the first slot's rows
  RingSlot<Tile::kStages> slot_;
  float sums_[Tile::kOut / 2];
};

#endif  // VOXCONV_WARPGROUP_MMA

// Block i: tile i % tiles of range i / tiles.
template <typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    SumRangesByWarpgroups(const __grid_constant__ StepRanges ranges,
                          const __grid_constant__ RangeOperands operands, int tiles_out,
                          int tiles) {
#if VOXCONV_WARPGROUP_MMA
  extern __shared__ __align__(1024) char shared[];
  LetNextKernelIn();
  const RowRing<Tile> ring(shared);
  ring.Init();
  const int range = static_cast<int>(blockIdx.x) / tiles;
  const int tile = static_cast<int>(blockIdx.x) - range * tiles;
  const int64_t in = int64_t{tile / tiles_out} * Tile::kIn;
  const int64_t out = int64_t{tile % tiles_out} * Tile::kOut;
  const RangeSteps steps(ranges, range, Tile::kStepPairs);
  if (threadIdx.x >= Tile::kGroups * 128) {
    AwaitEarlierKernels();
    RowCopier<Tile>(operands, in, out, ring).Run(steps, threadIdx.x / 32 - Tile::kGroups * 4);
  } else {
    RowMultiplier<Tile>(operands, in, out, ring).Run(steps, range);
  }
#endif
}

template <typename Tile>
class WarpgroupRangeSums final : public RangeSums {
 public:
  WarpgroupRangeSums(int64_t c_in, int64_t c_out)
      : tiles_out_(static_cast<int>(CeilDiv(c_out, Tile::kOut))),
        tiles_(static_cast<int>(CeilDiv(c_in, Tile::kIn)) * tiles_out_) {}

  int step_pairs() const override { return Tile::kStepPairs; }
  absl::StatusOr<int> NumRanges(const ExecutionContext& context) const override {
    return std::max(1, AsCuda(context).num_multiprocessors() / tiles_);
  }
  absl::Status Launch(const StepRanges& ranges, const RangeOperands& operands,
                      const ExecutionContext& context) const override {
    const dim3 grid(static_cast<unsigned>(ranges.num_ranges() * tiles_));
    VOXCONV_LAUNCH_EARLY(SumRangesByWarpgroups<Tile>, grid, Tile::kThreads, Tile::kSharedBytes,
                         context, ranges, operands, tiles_out_, tiles_);
    return absl::OkStatus();
  }

 private:
  int tiles_out_, tiles_;
};

// Tiles have 128 input channels: fewer than 65 would leave half of the products unused.
inline bool FillsWarpgroups(int64_t c_in, int64_t c_out) { return c_in > 64 && c_out > 64; }

template <typename Element>
std::unique_ptr<const RangeSums> MakeWarpgroupRangeSums(int64_t c_in, int64_t c_out) {
  if (c_out <= 96) {
    return std::make_unique<WarpgroupRangeSums<WarpgroupTile<Element, 96>>>(c_in, c_out);
  }
  if (c_out <= 128) {
    return std::make_unique<WarpgroupRangeSums<WarpgroupTile<Element, 128>>>(c_in, c_out);
  }
  return std::make_unique<WarpgroupRangeSums<WarpgroupTile<Element, 256>>>(c_in, c_out);
}

}  // namespace range_sums
}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_WARPGROUP_CUH_
