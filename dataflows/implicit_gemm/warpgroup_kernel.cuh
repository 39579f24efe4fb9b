// Output-stationary implicit GEMM with products of whole warpgroups (wgmma), for f16 and bf16 on
// compute capability 9.0.
//
// As the block kernel, but 64 rows (the M of one wgmma) share one set of offsets, operands are read
// from shared memory by the tensor cores themselves. A warpgroup owns 64 rows and all channels of
// its block.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_KERNEL_CUH_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARPGROUP_KERNEL_CUH_

#include <cstdint>

#include "backends/cuda/cuda_launch.h"
#include "backends/cuda/tensor_core.cuh"
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
  static constexpr int kThreads = 2 * kRows;
  static constexpr int kAhead = kStages - 1;  // steps loaded before they are multiplied
  using Offsets = TileOffsets<kRows, kThreads, true>;

  static constexpr int kRowBytes = 128;
  static constexpr int kInputBytes = kRows * kRowBytes;
  static constexpr int kAtoms = (kChannels + 63) / 64;  // of 64 output channels
  static constexpr int kAtomBytes = kDepth * kRowBytes;
  static constexpr int kStageBytes = kInputBytes + kAtoms * kAtomBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + static_cast<int>(sizeof(Offsets));
  static_assert(kAhead >= 1);
};

#if VOXCONV_WARPGROUP_MMA

template <typename Config>
class WarpgroupTile {
  using Element = typename Config::Element;
  static constexpr int kVector = 8;         // elements in 16 bytes
  static constexpr int kGroupBytes = 1024;  // eight rows
  static constexpr int kInputVectors = Config::kDepth / kVector;
  static constexpr int kWeightVectors = Config::kChannels / kVector;

 public:
  __device__ WarpgroupTile(const ImplicitGemmArgs& args, char* shared, int64_t first_row,
                           int channel, int part)
      : args_(args),
        shared_(SharedAddress(shared)),
        offsets_(*reinterpret_cast<typename Config::Offsets*>(shared + Config::kStages *
                                                                           Config::kStageBytes)),
        channel_(channel),
        part_(part),
        split_(part / args.k_parts),
        chunks_((args.c_in + Config::kDepth - 1) / Config::kDepth),
        warpgroup_(threadIdx.x / 128) {
    offsets_.LoadRows(args, split_, first_row);
  }

  __device__ void Run() {
    for (int word = 0; word < SplitWords(args_, split_); ++word) {
      first_offset_ = args_.split_ptr[split_] + word * 32;
      const int count = offsets_.LoadWord(args_, split_, word);
      mine_ = 0;
#pragma unroll
      for (int g = 0; g < 4; ++g) mine_ |= offsets_.group_mask[warpgroup_ * 4 + g];
      const int share = part_ % args_.k_parts;
      Pipeline(count * share / args_.k_parts, count * (share + 1) / args_.k_parts);
    }
    Store();
  }

 private:
  // Offsets list[first] to list[last - 1]. A slot is filled again in the step after its products:
  // by then every warpgroup has waited for them and met the barrier.
  __device__ void Pipeline(int first, int last) {
    const int steps = (last - first) * chunks_;
    load_entry_ = first;
    load_chunk_ = 0;
#pragma unroll
    for (int s = 0; s < Config::kAhead; ++s) {
      if (s < steps) Load(s);
      CommitCopies();
    }
    int slot = 0, chunk = 0, entry = first;
    for (int step = 0; step < steps; ++step) {
      WaitCopies<Config::kAhead - 1>();
      ShowToProducts();
      __syncthreads();
      if (step + Config::kAhead < steps) Load(slot == 0 ? Config::kAhead : slot - 1);
      CommitCopies();
      if ((mine_ >> offsets_.list[entry] & 1) != 0) Multiply(slot);
      slot = slot + 1 == Config::kStages ? 0 : slot + 1;
      if (++chunk == chunks_) {
        chunk = 0;
        ++entry;
      }
    }
    WaitCopies<0>();
    __syncthreads();
  }

  __device__ void Load(int slot) {
    const int bit = offsets_.list[load_entry_];
    const int depth = load_chunk_ * Config::kDepth;
    const uint32_t to = shared_ + slot * Config::kStageBytes;
    LoadInputs(bit, depth, to);
    LoadWeights(first_offset_ + bit, depth, to + Config::kInputBytes);
    if (++load_chunk_ == chunks_) {
      load_chunk_ = 0;
      ++load_entry_;
    }
  }

  static __device__ uint32_t Swizzled(int row, int v) {
    return row * Config::kRowBytes + (v ^ (row & 7)) * 16;
  }

  __device__ void LoadInputs(int bit, int depth, uint32_t to) {
    constexpr int kRowStep = Config::kThreads / kInputVectors;
    const int row = threadIdx.x / kInputVectors, v = threadIdx.x % kInputVectors;
    const int c = depth + v * kVector;
    const Element* input = static_cast<const Element*>(args_.input) + c;
    const bool inside = c < args_.c_in;
    const int32_t* in = &offsets_.in[bit][row];
    to += Swizzled(row, v);
#pragma unroll
    for (int i = 0; i < Config::kRows / kRowStep; ++i) {
      const int32_t from = in[i * kRowStep];
      CopyAsync16(to + i * kRowStep * Config::kRowBytes, input + int64_t{from} * args_.c_in,
                  inside && from >= 0);
    }
  }

  __device__ void LoadWeights(int offset, int depth, uint32_t to) {
    constexpr int kColumns = kWeightVectors == 12 ? 16 : kWeightVectors;
    constexpr int kRowStep = Config::kThreads / kColumns;
    static_assert(kRowStep % 8 == 0 && Config::kDepth % kRowStep == 0);
    const int row = threadIdx.x / kColumns, v = threadIdx.x % kColumns;
    if (kColumns != kWeightVectors && v >= kWeightVectors) return;
    const int n = channel_ + v * kVector;
    const Element* weights = static_cast<const Element*>(args_.weights) +
                             (int64_t{offset} * args_.c_in + depth + row) * args_.ld_weights + n;
    const int rows = n < args_.ld_weights ? args_.c_in - depth - row : 0;
    to += v / 8 * Config::kAtomBytes + Swizzled(row, v % 8);
#pragma unroll
    for (int i = 0; i < Config::kDepth / kRowStep; ++i) {
      CopyAsync16(to + i * kRowStep * Config::kRowBytes, weights, i * kRowStep < rows);
      weights += kRowStep * int64_t{args_.ld_weights};
    }
  }

  // Channels past the input's are zeros. Waits for the products: the compiler would make those that
  // are under way across a branch wait one for the other. Other warpgroups fill the gap.
  __device__ void Multiply(int slot) {
    const uint32_t inputs = shared_ + slot * Config::kStageBytes;
    const uint32_t weights = inputs + Config::kInputBytes;
    const uint32_t rows = inputs + warpgroup_ * 64 * Config::kRowBytes;
    BeginProducts();
#pragma unroll
    for (int k = 0; k < Config::kDepth / 16; ++k) {
      WarpgroupMma<Element, Config::kChannels>(
          sum_, SwizzledTile(rows + k * 32, 16, kGroupBytes),
          SwizzledTile(weights + k * 16 * Config::kRowBytes, Config::kAtomBytes, kGroupBytes));
    }
    CommitProducts();
    WaitProducts<0>();
  }

  __device__ void Store() {
    WaitCopies<0>();  // the rows'
    __syncthreads();
    const int lane = threadIdx.x % 32;
    int32_t rows[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) rows[r] = offsets_.rows[threadIdx.x / 32 * 16 + r * 8 + lane / 4];
    StoreTile<Element, 2, Config::kChannels / 8>(
        args_, part_, rows, channel_, [this](int r, int n) {
          return float2{sum_[n * 4 + r * 2], sum_[n * 4 + r * 2 + 1]};
        });
  }

  const ImplicitGemmArgs& args_;
  uint32_t shared_;
  typename Config::Offsets& offsets_;
  int channel_;
  int part_;
  int split_;
  int chunks_;  // steps of an offset
  int warpgroup_;
  int first_offset_ = 0;
  uint32_t mine_ = 0;  // offsets of the warpgroup's rows
  int load_entry_ = 0, load_chunk_ = 0;
  float sum_[Config::kChannels / 2] = {};
};

#endif  // VOXCONV_WARPGROUP_MMA

// Grid: as of the block kernel.
template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerMultiprocessor)
    ImplicitGemmWarpgroup(const __grid_constant__ ImplicitGemmArgs args) {
#if VOXCONV_WARPGROUP_MMA
  extern __shared__ __align__(1024) char shared[];
  const unsigned tiles_n = (args.c_out + Config::kChannels - 1) / Config::kChannels;
  const int64_t tile = gridDim.x / tiles_n - 1 - blockIdx.x / tiles_n;
  const int channel = static_cast<int>(blockIdx.x % tiles_n) * Config::kChannels;
  WarpgroupTile<Config>(args, shared, tile * Config::kRows, channel, static_cast<int>(blockIdx.y))
      .Run();
#endif
}

template <typename Config>
absl::Status LaunchWarpgroup(const ImplicitGemmArgs& args, const ExecutionContext& context) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.num_outputs, Config::kRows) *
                                        CeilDiv(args.c_out, Config::kChannels)),
                  static_cast<unsigned>(args.num_parts()));
  VOXCONV_LAUNCH(ImplicitGemmWarpgroup<Config>, grid, Config::kThreads, Config::kSharedBytes,
                 context, args);
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
