// SPDX-License-Identifier: Apache-2.0
// The kernel of weight_gradient_mma.h: a block sums the products of a range of pairs for a tile of
// input and output channels. mma.sync m16n8k16 for f16 and bf16, m16n8k8 for tf32, and f32's own
// multiply-and-add for FullFloat; the depth of the products is the pairs.
#ifndef VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_KERNEL_CUH_
#define VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_KERNEL_CUH_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "voxconv/backends/cuda/copy_chunk.cuh"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/cuda_vector.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/backends/cuda/tensor_core.cuh"
#include "voxconv/backends/cuda/weight_gradient_full.cuh"
#include "voxconv/backends/cuda/weight_gradient_mma.h"
#include "voxconv/backends/cuda/weight_gradient_rows.cuh"
#include "voxconv/backends/cuda/weight_gradient_steps.cuh"

// What only the kernel uses, which is empty for older devices.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#pragma nv_diag_suppress 177
#endif

namespace voxconv {
namespace range_sums {

// Rows are copied kAhead steps ahead of their products, and indices as many steps ahead of their
// rows.
constexpr uint32_t kStages = 4;
constexpr int kAhead = kStages - 1;
constexpr uint32_t kIndexSlots = 2 * kStages;  // at least 2 * kAhead + 1

// kIn x kOut channels. A warp has kWarpIn x kWarpOut of them. Small tiles have several slices of
// warps, which take different pairs of a step.
template <typename T, int kIn, int kOut, bool kVector>
struct Tile {
  static constexpr int kWarpIn = std::min(kIn, 64), kWarpOut = 32;
  static constexpr int kWarpsOut = kOut / kWarpOut;
  static constexpr int kWarps = kIn / kWarpIn * kWarpsOut;  // of a slice
  static constexpr int kSlices = std::max(1, 4 / kWarps);
  static constexpr int kThreads = kWarps * kSlices * 32;
  static constexpr uint32_t kDepth = Fragments<T>::kDepth;
  static constexpr int kSlicePairs = 2 * kDepth;  // of a step
  static constexpr int kStepPairs = kSlicePairs * kSlices;
  static constexpr int kInBytes = kStepPairs * Rows<T, kIn>::kBytes;
  static constexpr int kStageBytes = kInBytes + kStepPairs * Rows<T, kOut>::kBytes;
  // The input and the output rows of one step's pairs, in shared memory.
  struct Indices {
    int32_t in[kStepPairs], out[kStepPairs];
    int pairs;  // fewer than kStepPairs in the last step of an offset
  };
  static constexpr int kSums = kWarpIn * kWarpOut / 32;  // of a thread
  static constexpr int kSharedBytes =
      std::max<int>(kStages * kStageBytes + kIndexSlots * sizeof(Indices),
                    (kSlices - 1) * kIn * kOut * sizeof(float));
  static constexpr bool kFull = std::is_same_v<T, FullFloat>;
  using Sums = float[kWarpIn / 16][kWarpOut / 8][4];

  // Queues the copies of the indices of the step's pairs, which begin at `pair`.
  static __device__ void CopyIndices(const RangeOperands& operands, int64_t pair, int64_t end,
                                     Indices& to) {
    const auto pairs = static_cast<int>(min(end - pair, int64_t{kStepPairs}));
    if (threadIdx.x == 0) to.pairs = pairs;
#pragma unroll
    for (int first = 0; first < 2 * kStepPairs; first += kThreads) {
      const int i = first + static_cast<int>(threadIdx.x);
      if (2 * kStepPairs % kThreads != 0 && i >= 2 * kStepPairs) break;
      const bool is_in = i < kStepPairs;
      const int at = is_in ? i : i - kStepPairs;
      if (at >= pairs) continue;
      CopyAsync4(SharedAddress(is_in ? &to.in[at] : &to.out[at]),
                 (is_in ? operands.in : operands.out) + pair + at);
    }
  }

  // What a thread copies of one operand: the same column of every kRowStep-th row of a step.
  template <int kChannels>
  class Column {
   public:
    using R = Rows<T, kChannels>;
    static constexpr uint32_t kRowStep = kThreads / R::kColumns;
    static constexpr uint32_t kCopies = kStepPairs / kRowStep;
    static_assert(kThreads % R::kColumns == 0 && kStepPairs % kRowStep == 0);
    static_assert(kRowStep % R::kPeriod == 0);

    __device__ Column(const void* rows, int64_t first_channel, int64_t channels)
        : channels_(static_cast<uint32_t>(channels)),
          channel_(static_cast<uint32_t>(first_channel) +
                   threadIdx.x % R::kColumns * R::kColumnElements),
          row_(threadIdx.x / R::kColumns),
          to_(R::At(row_, threadIdx.x % R::kColumns)) {
      from_ = static_cast<const T*>(rows) + (kVector && channel_ < channels_ ? channel_ : 0);
    }

    // Reads the indices of a step's rows.
    __device__ void Find(const int32_t* rows) {
#pragma unroll
      for (uint32_t i = 0; i < kCopies; ++i) rows_[i] = rows[row_ + i * kRowStep];
    }
    // Queues the copies of these rows. `pairs` of them are there; the others become zeros.
    __device__ void Copy(char* stage, int pairs) const {
      const uint32_t first = SharedAddress(stage) + to_;
      const bool inside = channel_ < channels_;
#pragma unroll
      for (uint32_t i = 0; i < kCopies; ++i) {
        const bool valid = static_cast<int>(row_ + i * kRowStep) < pairs;
        const T* const row =
            from_ + uint64_t{static_cast<uint32_t>(valid ? rows_[i] : 0)} * channels_;
        if constexpr (kVector) {
          CopyAsync16(first + i * kRowStep * R::kBytes, row, valid && inside);
        } else {
          CopyChunk<T, false>(stage + to_ + i * kRowStep * R::kBytes, row, channel_, channels_,
                              valid);
        }
      }
    }

   private:
    const T* from_;      // its element of row 0; the row's first where the row ends before it
    uint32_t channels_;  // of a row
    uint32_t channel_;   // of the element
    uint32_t row_, to_;  // the first row of a step, and the address there, relative to the rows
    int32_t rows_[kCopies];
  };

  // Adds the products of block `depth` of this warp's pairs. `first_a` and `first_b`:
  // Fragments::First* of its channels and pairs, in the stage.
  static __device__ void Multiply(uint32_t first_a, uint32_t first_b, int depth, Sums& sums) {
    if constexpr (kFull) {
      FullProducts<kIn, kOut, kWarpIn>::Add(first_a, first_b, depth, sums);
    } else {
      MultiplyByMma(first_a, first_b, depth, sums);
    }
  }
  static __device__ void MultiplyByMma(uint32_t first_a, uint32_t first_b, int depth, Sums& sums) {
    uint32_t b[kWarpOut / 16][2][2];
#pragma unroll
    for (int n = 0; n < kWarpOut / 16; ++n) {
      Fragments<T>::template LoadB<kOut>(first_b, n, depth, b[n]);
    }
#pragma unroll
    for (int m = 0; m < kWarpIn / 16; ++m) {
      uint32_t a[4];
      Fragments<T>::template LoadA<kIn>(first_a, m, depth, a);
#pragma unroll
      for (int n = 0; n < kWarpOut / 8; ++n) {
        Mma<T>(sums[m][n], a, b[n / 2][n % 2][0], b[n / 2][n % 2][1]);
      }
    }
  }

  // Adds the products of the steps of an offset with the pairs [pair_begin, pair_end) to `sums`,
  // those of channels [in, in + kIn) and [out, out + kOut). The first slice has the sums of all.
  static __device__ void SumPairs(const RangeOperands& operands, int64_t in, int64_t out,
                                  const OffsetSteps& steps, int64_t pair_begin, int64_t pair_end,
                                  char* shared, Sums& sums) {
    auto* const indices = reinterpret_cast<Indices*>(shared + kStages * kStageBytes);
    Column<kIn> column_in(operands.x, in, operands.c_in);
    Column<kOut> column_out(operands.dy, out, operands.c_out);
    const uint32_t warp = threadIdx.x / 32 % kWarps, slice = threadIdx.x / 32 / kWarps;
    const uint32_t first_pair = slice * kSlicePairs, base = SharedAddress(shared);
    const uint32_t first_a = base + first_pair * Rows<T, kIn>::kBytes +
                             Fragments<T>::template FirstA<kIn>(warp / kWarpsOut * kWarpIn);
    const uint32_t first_b = base + kInBytes + first_pair * Rows<T, kOut>::kBytes +
                             Fragments<T>::template FirstB<kOut>(warp % kWarpsOut * kWarpOut);
    const auto copy_indices = [&](int t) {
      if (t >= steps.end) return;
      const int64_t pair = pair_begin + int64_t{steps.StepAt(t)} * kStepPairs;
      CopyIndices(operands, pair, pair_end, indices[static_cast<uint32_t>(t) % kIndexSlots]);
    };
    const auto find_rows = [&](int t) -> int {
      const Indices& rows = indices[static_cast<uint32_t>(t) % kIndexSlots];
      column_in.Find(rows.in);
      column_out.Find(rows.out);
      return rows.pairs;
    };
    const auto copy_rows = [&](int t, int pairs) {
      if (t >= steps.end) return;
      char* const stage = shared + static_cast<uint32_t>(t) % kStages * kStageBytes;
      column_in.Copy(stage, pairs);
      column_out.Copy(stage + kInBytes, pairs);
    };
    __syncthreads();  // all warps have read what the pairs before left in shared memory
#pragma unroll
    for (int t = 0; t < kAhead; ++t) copy_indices(steps.begin + t);
    CommitCopies();
    WaitCopies<0>();
    __syncthreads();
#pragma unroll
    for (int t = 0; t < kAhead; ++t) {
      copy_rows(steps.begin + t, find_rows(steps.begin + t));
      copy_indices(steps.begin + t + kAhead);
      CommitCopies();
    }
    for (int t = steps.begin; t < steps.end; ++t) {
      const uint32_t stage = static_cast<uint32_t>(t) % kStages * kStageBytes;
      WaitCopies<kAhead - 1>();
      __syncthreads();
      // Products between loads and the copies that need them hide the loads' latency.
      const int pairs = find_rows(t + kAhead);
      Multiply(first_a + stage, first_b + stage, 0, sums);
      copy_rows(t + kAhead, pairs);
      Multiply(first_a + stage, first_b + stage, 1, sums);
      copy_indices(t + 2 * kAhead);
      CommitCopies();
    }
    AddSlices(shared, sums);
  }

  // Adds the slices' sums to those of the first slice, in the order of the slices.
  static __device__ void AddSlices(char* shared, Sums& sums) {
    if constexpr (kSlices > 1) {
      const int lane = threadIdx.x % 32;
      const int warp = threadIdx.x / 32 % kWarps, slice = threadIdx.x / 32 / kWarps;
      float* const own = reinterpret_cast<float*>(&sums);
      WaitCopies<0>();
      __syncthreads();  // all warps have read the last stage
      const auto at = [&](int s, int i) {
        return reinterpret_cast<float*>(shared) + (((s - 1) * kWarps + warp) * kSums + i) * 32 +
               lane;
      };
      if (slice > 0) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) *at(slice, i) = own[i];
      }
      __syncthreads();
      if (slice > 0) return;
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
#pragma unroll
        for (int s = 1; s < kSlices; ++s) own[i] += *at(s, i);
      }
    }
  }

  static __device__ void Write(const Sums& sums, int64_t in, int64_t out,
                               const RangeOperands& operands, float* to) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (warp >= kWarps) return;  // not the first slice
    in += warp / kWarpsOut * kWarpIn;
    out += warp % kWarpsOut * kWarpOut;
    if constexpr (kFull) {
      FullProducts<kIn, kOut, kWarpIn>::Write(sums, in, out, operands, to);
      return;
    }
    in += lane / 4;
    out += lane % 4 * 2;
    const bool pairwise = operands.c_out % 2 == 0;
#pragma unroll
    for (int m = 0; m < kWarpIn / 16; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t row = in + m * 16 + half * 8;
        if (row >= operands.c_in) continue;
#pragma unroll
        for (int n = 0; n < kWarpOut / 8; ++n) {
          const int64_t column = out + n * 8;
          float* const at = to + row * operands.c_out + column;
          const float2 two{sums[m][n][half * 2], sums[m][n][half * 2 + 1]};
          if (pairwise) {
            if (column < operands.c_out) *reinterpret_cast<float2*>(at) = two;
          } else {
            if (column < operands.c_out) at[0] = two.x;
            if (column + 1 < operands.c_out) at[1] = two.y;
          }
        }
      }
    }
  }
};

// Block i: tile i % tiles of range i / tiles, so that the tiles of a range, which gather the same
// rows, run side by side.
template <typename T, int kIn, int kOut, bool kVector>
__global__ void __launch_bounds__(Tile<T, kIn, kOut, kVector>::kThreads, 2)
    SumRanges(const __grid_constant__ StepRanges ranges,
              const __grid_constant__ RangeOperands operands, int tiles_out, int tiles) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using Tile = Tile<T, kIn, kOut, kVector>;
  extern __shared__ __align__(128) char shared[];
  LetNextKernelIn();
  const int range = static_cast<int>(blockIdx.x) / tiles;
  const int tile = static_cast<int>(blockIdx.x) - range * tiles;
  const int64_t in = int64_t{tile / tiles_out} * kIn, out = int64_t{tile % tiles_out} * kOut;
  int step = range * ranges.range_steps;
  const int end = min(step + ranges.range_steps, ranges.step_ptr[ranges.num_offsets]);
  AwaitEarlierKernels();
  for (int k = OffsetOf(ranges, step); step < end; ++k) {
    if (ranges.step_ptr[k] == ranges.step_ptr[k + 1]) continue;  // an offset without pairs
    typename Tile::Sums sums = {};
    Tile::SumPairs(operands, in, out, StepsOf(ranges, k, range), ranges.pair_ptr[k],
                   ranges.pair_ptr[k + 1], shared, sums);
    Tile::Write(sums, in, out, operands,
                operands.sums + int64_t{range + k} * operands.c_in * operands.c_out);
    step = ranges.step_ptr[k + 1];
  }
#endif
}

template <typename T, int kIn, int kOut, bool kVector>
class TiledRangeSums final : public RangeSums {
 public:
  TiledRangeSums(int64_t c_in, int64_t c_out)
      : tiles_out_(static_cast<int>(CeilDiv(c_out, kOut))),
        tiles_(static_cast<int>(CeilDiv(c_in, kIn)) * tiles_out_) {}

  int step_pairs() const override { return Tile::kStepPairs; }
  absl::StatusOr<int> NumRanges(const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(
        const int blocks,
        ResidentBlocks(reinterpret_cast<const void*>(&SumRanges<T, kIn, kOut, kVector>),
                       Tile::kThreads, Tile::kSharedBytes, context));
    return std::max(1, blocks * AsCuda(context).num_multiprocessors() / tiles_);
  }
  absl::Status Launch(const StepRanges& ranges, const RangeOperands& operands,
                      const ExecutionContext& context) const override {
    const dim3 grid(static_cast<unsigned>(ranges.num_ranges() * tiles_));
    VOXCONV_LAUNCH_EARLY((SumRanges<T, kIn, kOut, kVector>), grid, Tile::kThreads,
                         Tile::kSharedBytes, context, ranges, operands, tiles_out_, tiles_);
    return absl::OkStatus();
  }

 private:
  using Tile = range_sums::Tile<T, kIn, kOut, kVector>;
  int tiles_out_, tiles_;
};

template <typename T, int kIn, int kOut, bool kVector>
std::unique_ptr<const RangeSums> Make(int64_t c_in, int64_t c_out) {
  return std::make_unique<TiledRangeSums<T, kIn, kOut, kVector>>(c_in, c_out);
}

template <typename T, int kIn>
std::unique_ptr<const RangeSums> MakeIn(int64_t c_in, int64_t c_out) {
  if (c_out <= 32) return Make<T, kIn, 32, true>(c_in, c_out);
  if (c_out <= 64) return Make<T, kIn, 64, true>(c_in, c_out);
  return Make<T, kIn, 128, true>(c_in, c_out);
}

template <typename T>
std::unique_ptr<const RangeSums> MakeRangeSums(int64_t c_in, int64_t c_out, bool vector) {
  if (!vector) {  // gains little from other tiles
    return c_in <= 32 ? Make<T, 32, 64, false>(c_in, c_out) : Make<T, 64, 64, false>(c_in, c_out);
  }
  if (c_in <= 32) return MakeIn<T, 32>(c_in, c_out);
  if (c_in <= 64) return MakeIn<T, 64>(c_in, c_out);
  return MakeIn<T, 128>(c_in, c_out);
}

}  // namespace range_sums
}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_KERNEL_CUH_
