// Output-stationary implicit GEMM on tensor cores, a block at a time (SpConv 2, TorchSparse++).
//
// A block owns kRows output rows in mask order and kChannels output channels. It walks the kernel
// offsets that any of its rows has; for each it gathers the rows' inputs and multiplies them by the
// offset's weights, through a ring of kStages shared-memory buffers filled by cp.async. Offsets are
// skipped twice: for the whole block by the union of its rows' masks, and for each group of 16
// rows (the M of one mma) by theirs, so the matrix work has the waste of 16-row tiles while the
// weights are loaded once for kRows rows.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BLOCK_KERNEL_CUH_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BLOCK_KERNEL_CUH_

#include <cstdint>

#include "backends/cuda/cuda_launch.h"
#include "backends/cuda/tensor_core.cuh"
#include "dataflows/implicit_gemm/tile_offsets.cuh"

namespace voxconv {

// Sizes of one instance. kDepth: input channels of a step; warps stand kWarpsM x kWarpsN over the
// tile.
template <typename ElementType, int kRowsValue, int kChannelsValue, int kDepthValue,
          int kWarpsMValue, int kWarpsNValue, int kStagesValue>
struct BlockConfig {
  using Element = ElementType;
  static constexpr int kRows = kRowsValue, kChannels = kChannelsValue, kDepth = kDepthValue;
  static constexpr int kWarpsM = kWarpsMValue, kWarpsN = kWarpsNValue, kStages = kStagesValue;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kVector = 16 / static_cast<int>(sizeof(Element));  // elements in 16 bytes
  static constexpr int kMmaDepth = sizeof(Element) == 2 ? 16 : 8;
  static constexpr int kGroupsPerWarp = kRows / 16 / kWarpsM;
  static constexpr int kWarpChannels = kChannels / kWarpsN;
  static constexpr int kTilesN = kWarpChannels / 8;  // n8 tiles of a warp
  using Offsets = TileOffsets<kRows, kThreads>;

  static constexpr int kInputBytes = kRows * kDepth * static_cast<int>(sizeof(Element));
  static constexpr int kWeightBytes = kDepth * kChannels * static_cast<int>(sizeof(Element));
  static constexpr int kStageBytes = kInputBytes + kWeightBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + static_cast<int>(sizeof(Offsets));

  // By registers: two blocks where a thread has few sums.
  static constexpr int kBlocksPerMultiprocessor =
      kThreads <= 256 && kGroupsPerWarp * kTilesN <= 16 ? 2 : 1;

  static_assert(kRows % (16 * kWarpsM) == 0 && kWarpChannels % 16 == 0);
  static_assert(kDepth % kMmaDepth == 0);
};

// Where 16-byte vector `v` of row `row` lies in a tile of `kVectors` vectors a row: eight rows at
// one vector (an ldmatrix) must meet eight different 16-byte columns of the banks.
template <int kVectors>
__device__ __forceinline__ int Swizzled(int row, int v) {
  constexpr int kSpan = kVectors % 8 == 0 ? 8 : (kVectors % 4 == 0 ? 4 : 2);
  static_assert(kVectors % 2 == 0);
  return row * kVectors + (v ^ (row / (8 / kSpan) % kSpan));
}
// The same for weights of 4-byte elements, which are read one by one: four adjacent rows at eight
// adjacent elements must meet different banks.
template <int kVectors>
__device__ __forceinline__ int SwizzledWide(int row, int v) {
  static_assert(kVectors % 8 == 0);
  return row * kVectors + (v ^ ((row & 3) * 2));
}

template <typename Config>
class BlockTile {
  using Element = typename Config::Element;
  static constexpr int kInputVectors = Config::kDepth / Config::kVector;
  static constexpr int kWeightVectors = Config::kChannels / Config::kVector;

 public:
  __device__ BlockTile(const ImplicitGemmArgs& args, char* shared, int64_t first_row, int channel,
                       int part)
      : args_(args),
        shared_(shared),
        offsets_(*reinterpret_cast<typename Config::Offsets*>(shared + Config::kStages *
                                                                           Config::kStageBytes)),
        channel_(channel),
        part_(part),
        split_(part / args.k_parts),
        chunks_((args.c_in + Config::kDepth - 1) / Config::kDepth),
        warp_m_(threadIdx.x / 32 % Config::kWarpsM),
        warp_n_(threadIdx.x / 32 / Config::kWarpsM),
        lane_(threadIdx.x % 32) {
    offsets_.LoadRows(args, split_, first_row);
  }

  __device__ void Run() {
    for (int word = 0; word < SplitWords(args_, split_); ++word) {
      first_offset_ = args_.split_ptr[split_] + word * 32;
      const int count = offsets_.LoadWord(args_, split_, word);
      const int share = part_ % args_.k_parts;
      Pipeline(count * share / args_.k_parts, count * (share + 1) / args_.k_parts);
    }
    Store();
  }

 private:
  // Offsets list[first] to list[last - 1].
  __device__ void Pipeline(int first, int last) {
    const int steps = (last - first) * chunks_;
    load_entry_ = first;
    load_chunk_ = 0;
#pragma unroll
    for (int s = 0; s < Config::kStages - 1; ++s) {
      if (s < steps) Load(s);
      CommitCopies();
    }
    int slot = 0, chunk = 0, entry = first;
    for (int step = 0; step < steps; ++step) {
      WaitCopies<Config::kStages - 2>();
      __syncthreads();
      if (step + Config::kStages - 1 < steps) {
        Load(slot == 0 ? Config::kStages - 1 : slot - 1);
      }
      CommitCopies();
      Multiply(offsets_.list[entry], args_.c_in - chunk * Config::kDepth, slot);
      slot = slot + 1 == Config::kStages ? 0 : slot + 1;
      if (++chunk == chunks_) {
        chunk = 0;
        ++entry;
      }
    }
    WaitCopies<0>();
    __syncthreads();
  }

  // Queues the copies of the next step into `slot`.
  __device__ void Load(int slot) {
    const int bit = offsets_.list[load_entry_];
    const int depth = load_chunk_ * Config::kDepth;
    const uint32_t to = SharedAddress(shared_ + slot * Config::kStageBytes);
    LoadInputs(bit, depth, to);
    LoadWeights(first_offset_ + bit, depth, to + Config::kInputBytes);
    if (++load_chunk_ == chunks_) {
      load_chunk_ = 0;
      ++load_entry_;
    }
  }

  __device__ void LoadInputs(int bit, int depth, uint32_t to) {
    const Element* input = static_cast<const Element*>(args_.input);
    constexpr int kCopies = Config::kRows * kInputVectors;
    static_assert(kCopies % Config::kThreads == 0);
#pragma unroll
    for (int i = 0; i < kCopies / Config::kThreads; ++i) {
      const int copy = threadIdx.x + i * Config::kThreads;
      const int row = copy / kInputVectors, v = copy % kInputVectors;
      // The rows of a group without the offset are not multiplied.
      if ((offsets_.group_mask[row / 16] >> bit & 1) == 0) continue;
      const int32_t in = offsets_.in[bit][row];
      const int c = depth + v * Config::kVector;
      const bool valid = in >= 0 && c < args_.c_in;
      const Element* from = valid ? input + int64_t{in} * args_.c_in + c : input;
      CopyAsync16(to + Swizzled<kInputVectors>(row, v) * 16, from, valid);
    }
  }

  __device__ void LoadWeights(int offset, int depth, uint32_t to) {
    const Element* weights = static_cast<const Element*>(args_.weights) +
                             int64_t{offset} * args_.c_in * args_.ld_weights;
    constexpr int kCopies = Config::kDepth * kWeightVectors;
#pragma unroll
    for (int i = 0; i < (kCopies + Config::kThreads - 1) / Config::kThreads; ++i) {
      const int copy = threadIdx.x + i * Config::kThreads;
      if (kCopies % Config::kThreads != 0 && copy >= kCopies) break;
      const int row = copy / kWeightVectors, v = copy % kWeightVectors;
      const int c = depth + row, n = channel_ + v * Config::kVector;
      const bool valid = c < args_.c_in && n < args_.ld_weights;
      const Element* from = valid ? weights + int64_t{c} * args_.ld_weights + n : weights;
      int position;
      if constexpr (sizeof(Element) == 4) {
        position = SwizzledWide<kWeightVectors>(row, v);
      } else {
        position = Swizzled<kWeightVectors>(row, v);
      }
      CopyAsync16(to + position * 16, from, valid);
    }
  }

  // `depth` input channels are there.
  __device__ void Multiply(int bit, int depth, int slot) {
    const char* inputs = shared_ + slot * Config::kStageBytes;
    const char* weights = inputs + Config::kInputBytes;
    uint32_t mine = 0;  // bit g: group g of this warp has the offset
#pragma unroll
    for (int g = 0; g < Config::kGroupsPerWarp; ++g) {
      mine |= (offsets_.group_mask[Group(g)] >> bit & 1) << g;
    }
    if (mine == 0) return;
#pragma unroll
    for (int k = 0; k < Config::kDepth / Config::kMmaDepth; ++k) {
      if (k * Config::kMmaDepth >= depth) break;
      uint32_t b[Config::kTilesN][2];
      LoadWeightFragments(weights, k, b);
#pragma unroll
      for (int g = 0; g < Config::kGroupsPerWarp; ++g) {
        if ((mine >> g & 1) == 0) continue;
        uint32_t a[4];
        const int row = Group(g) * 16 + lane_ % 16, v = k * 2 + lane_ / 16;
        LoadMatrices(SharedAddress(inputs + Swizzled<kInputVectors>(row, v) * 16), a);
        if constexpr (sizeof(Element) == 4) {
#pragma unroll
          for (uint32_t& value : a) value = RoundToTf32(value);
        }
#pragma unroll
        for (int n = 0; n < Config::kTilesN; ++n) Mma<Element>(sum_[g][n], a, b[n][0], b[n][1]);
      }
    }
  }

  // Groups are dealt out in turn, so that warps skip about equally.
  __device__ int Group(int g) const { return g * Config::kWarpsM + warp_m_; }

  __device__ void LoadWeightFragments(const char* weights, int k,
                                      uint32_t (&b)[Config::kTilesN][2]) {
    const int first = warp_n_ * Config::kWarpChannels;
    if constexpr (sizeof(Element) == 4) {
#pragma unroll
      for (int n = 0; n < Config::kTilesN; ++n) {
        const int column = first + n * 8 + lane_ / 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = k * 8 + lane_ % 4 + half * 4;
          const int position = SwizzledWide<kWeightVectors>(row, column / 4) * 4 + column % 4;
          b[n][half] = RoundToTf32(reinterpret_cast<const uint32_t*>(weights)[position]);
        }
      }
    } else {
#pragma unroll
      for (int n = 0; n < Config::kTilesN; n += 2) {
        const int row = k * 16 + lane_ % 16, v = (first + n * 8) / 8 + lane_ / 16;
        uint32_t r[4];
        LoadMatricesTransposed(SharedAddress(weights + Swizzled<kWeightVectors>(row, v) * 16), r);
        b[n][0] = r[0];
        b[n][1] = r[1];
        b[n + 1][0] = r[2];
        b[n + 1][1] = r[3];
      }
    }
  }

  __device__ void Store() {
#pragma unroll
    for (int g = 0; g < Config::kGroupsPerWarp; ++g) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int32_t row = offsets_.rows[Group(g) * 16 + half * 8 + lane_ / 4];
        if (row < 0) continue;
#pragma unroll
        for (int n = 0; n < Config::kTilesN; ++n) {
          const int c = channel_ + warp_n_ * Config::kWarpChannels + n * 8 + lane_ % 4 * 2;
          StorePair<Element>(args_, part_, row, c,
                             {sum_[g][n][half * 2], sum_[g][n][half * 2 + 1]});
        }
      }
    }
  }

  const ImplicitGemmArgs& args_;
  char* shared_;
  typename Config::Offsets& offsets_;
  int channel_;
  int part_;  // split_ * k_parts + share of its offsets
  int split_;
  int chunks_;  // steps of an offset
  int warp_m_, warp_n_, lane_;
  int first_offset_ = 0;
  int load_entry_ = 0, load_chunk_ = 0;
  float sum_[Config::kGroupsPerWarp][Config::kTilesN][4] = {};
};

// Grid: (row tiles x channel tiles, parts). Channel tiles of one row tile are neighbours, so that
// its inputs are still in the L2. The last row tiles come first: in mask order they have the most
// offsets, and a grid should not end with its longest blocks.
template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerMultiprocessor)
    ImplicitGemmBlock(const __grid_constant__ ImplicitGemmArgs args) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) char shared[];
  const unsigned tiles_n = (args.c_out + Config::kChannels - 1) / Config::kChannels;
  const int64_t tile = gridDim.x / tiles_n - 1 - blockIdx.x / tiles_n;
  const int channel = static_cast<int>(blockIdx.x % tiles_n) * Config::kChannels;
  BlockTile<Config>(args, shared, tile * Config::kRows, channel, static_cast<int>(blockIdx.y))
      .Run();
#endif
}

template <typename Config>
absl::Status LaunchBlock(const ImplicitGemmArgs& args, const ExecutionContext& context) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.num_outputs, Config::kRows) *
                                        CeilDiv(args.c_out, Config::kChannels)),
                  static_cast<unsigned>(args.num_parts()));
  VOXCONV_LAUNCH(ImplicitGemmBlock<Config>, grid, Config::kThreads, Config::kSharedBytes, context,
                 args);
  return absl::OkStatus();
}

// The instances of one element type: 64 or 128 rows by 32 to 256 channels.
template <typename Element>
absl::Status LaunchBlockOf(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                           const ExecutionContext& context) {
  constexpr bool kWide = sizeof(Element) == 4;
  constexpr int kDepth = kWide ? 32 : 64;  // 128 bytes
  if (tile.rows == 256) {
    if (tile.channels == 64) {
      return LaunchBlock<BlockConfig<Element, 256, 64, kDepth / 2, 8, 1, 4>>(args, context);
    }
    if (tile.channels == 96) {
      return LaunchBlock<BlockConfig<Element, 256, 96, kDepth / 2, 8, 1, 4>>(args, context);
    }
    VOXCONV_CHECK(tile.channels == 128);
    return LaunchBlock<BlockConfig<Element, 256, 128, kDepth / 2, 8, 2, 4>>(args, context);
  }
  const bool large = tile.rows == 128;
  VOXCONV_CHECK(large || tile.rows == 64);
  switch (tile.channels) {
    case 32:
      return large ? LaunchBlock<BlockConfig<Element, 128, 32, kDepth, 4, 1, 3>>(args, context)
                   : LaunchBlock<BlockConfig<Element, 64, 32, kDepth, 2, 1, 3>>(args, context);
    case 64:
      return large ? LaunchBlock<BlockConfig<Element, 128, 64, kDepth, 4, 2, 3>>(args, context)
                   : LaunchBlock<BlockConfig<Element, 64, 64, kDepth, 2, 2, 3>>(args, context);
    case 96:
      return large ? LaunchBlock<BlockConfig<Element, 128, 96, kDepth / 2, 4, 2, 4>>(args, context)
                   : LaunchBlock<BlockConfig<Element, 64, 96, kDepth / 2, 2, 2, 4>>(args, context);
    case 128:
      return large ? LaunchBlock<BlockConfig<Element, 128, 128, kDepth, 4, 2, 3>>(args, context)
                   : LaunchBlock<BlockConfig<Element, 64, 128, kDepth, 2, 4, 3>>(args, context);
    default:
      VOXCONV_CHECK(tile.channels == 256);
      return large ? LaunchBlock<BlockConfig<Element, 128, 256, kDepth / 2, 4, 4, 3>>(args, context)
                   : LaunchBlock<BlockConfig<Element, 64, 256, kDepth / 2, 2, 4, 3>>(args, context);
  }
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BLOCK_KERNEL_CUH_
