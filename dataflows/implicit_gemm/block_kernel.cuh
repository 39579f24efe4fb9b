// SPDX-License-Identifier: Apache-2.0
// Output-stationary implicit GEMM on tensor cores, a block at a time (SpConv 2, TorchSparse++).
//
// A block owns kRows output rows in mask order and kChannels output channels. It walks the kernel
// offsets that any of its rows has. For each offset it gathers the rows' inputs and multiplies them
// by the offset's weights. Both go through a ring of kStages shared-memory buffers, which cp.async
// fills. Offsets are skipped twice. The whole block skips those that none of its rows has. Each
// group of 16 rows (the M of one mma) skips those that none of the group has. The products thus
// waste as little as tiles of 16 rows do, and the weights are loaded once for kRows rows.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BLOCK_KERNEL_CUH_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BLOCK_KERNEL_CUH_

#include <cstdint>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/backends/cuda/tensor_core.cuh"
#include "voxconv/dataflows/implicit_gemm/block_shape.h"
#include "voxconv/dataflows/implicit_gemm/tile_offsets.cuh"

namespace voxconv {

// Sizes of one instance. kDepth is the number of input channels of a step. The warps divide the
// tile into kWarpsM x kWarpsN parts.
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
  using Offsets = TileOffsets<kRows, kThreads, true>;

  static constexpr int kInputBytes = kRows * kDepth * static_cast<int>(sizeof(Element));
  static constexpr int kWeightBytes = kDepth * kChannels * static_cast<int>(sizeof(Element));
  static constexpr int kStageBytes = kInputBytes + kWeightBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + static_cast<int>(sizeof(Offsets));

  // The registers limit this. Two blocks fit if a thread has few sums.
  static constexpr int kBlocksPerMultiprocessor =
      kThreads <= 256 && kGroupsPerWarp * kTilesN <= 16 ? 2 : 1;

  static_assert(kRows % (16 * kWarpsM) == 0 && kWarpChannels % 16 == 0);
  static_assert(kDepth % kMmaDepth == 0);
};

// The place of 16-byte vector `v` of row `row` in a tile with `kVectors` vectors in each row. An
// ldmatrix reads one vector of eight rows. These must lie in eight different 16-byte columns of the
// banks.
template <int kVectors>
__device__ __forceinline__ int Swizzled(int row, int v) {
  constexpr int kSpan = kVectors % 8 == 0 ? 8 : (kVectors % 4 == 0 ? 4 : 2);
  static_assert(kVectors % 2 == 0);
  return row * kVectors + (v ^ (row / (8 / kSpan) % kSpan));
}
// As above, for weights of 4-byte elements, which are read one by one. A warp reads eight adjacent
// elements of four adjacent rows. These must lie in different banks.
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
  static constexpr bool kWide = sizeof(Element) == 4;
  static constexpr int kFragments = kWide ? Config::kTilesN : Config::kTilesN / 2;

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
    LocateFragments();
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
  // Multiplies the offsets list[first] to list[last - 1].
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

  // Copies the inputs of one step. A thread copies one vector of every kRowStep-th row, so that the
  // swizzle is the same for all its rows. Rows without the offset become zeros, and their addresses
  // are not read.
  __device__ void LoadInputs(int bit, int depth, uint32_t to) {
    constexpr int kRowStep = Config::kThreads / kInputVectors;
    static_assert(kRowStep % 8 == 0 && Config::kRows % kRowStep == 0);
    const int row = threadIdx.x / kInputVectors, v = threadIdx.x % kInputVectors;
    const int c = depth + v * Config::kVector;
    const Element* input = static_cast<const Element*>(args_.input) + c;
    const bool inside = c < args_.c_in;
    const int32_t* in = &offsets_.in[bit][row];
    to += Swizzled<kInputVectors>(row, v) * 16;
#pragma unroll
    for (int i = 0; i < Config::kRows / kRowStep; ++i) {
      const int32_t from = in[i * kRowStep];
      CopyAsync16(to + i * kRowStep * kInputVectors * 16,
                  reinterpret_cast<const char*>(input) + int64_t{from} * args_.input_row_bytes,
                  inside && from >= 0);
    }
  }

  // Copies the weights of one step in the same way.
  __device__ void LoadWeights(int offset, int depth, uint32_t to) {
    // A power of two. Threads behind the end of the row copy nothing.
    constexpr int kColumns =
        kWeightVectors == 12 ? 16 : (kWeightVectors == 24 ? 32 : kWeightVectors);
    constexpr int kRowStep = Config::kThreads / kColumns;
    constexpr int kLoads = kRowStep > Config::kDepth ? 1 : Config::kDepth / kRowStep;
    static_assert(kRowStep % (kWide ? 4 : 8) == 0 &&
                  (kLoads == 1 || kLoads * kRowStep == Config::kDepth));
    const int row = threadIdx.x / kColumns, v = threadIdx.x % kColumns;
    if (kColumns != kWeightVectors && v >= kWeightVectors) return;
    if (kRowStep > Config::kDepth && row >= Config::kDepth) return;
    const int n = channel_ + v * Config::kVector;
    const Element* weights = static_cast<const Element*>(args_.weights) +
                             (int64_t{offset} * args_.c_in + depth + row) * args_.ld_weights + n;
    const int rows = n < args_.ld_weights ? args_.c_in - depth - row : 0;
    if constexpr (kWide) {
      to += SwizzledWide<kWeightVectors>(row, v) * 16;
    } else {
      to += Swizzled<kWeightVectors>(row, v) * 16;
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      CopyAsync16(to + i * kRowStep * kWeightVectors * 16, weights, i * kRowStep < rows);
      weights += kRowStep * int64_t{args_.ld_weights};
    }
  }

  // The group of 16 rows that is this warp's g-th. Warps take groups in turn, so that they skip
  // about equally often.
  __device__ int Group(int g) const { return g * Config::kWarpsM + warp_m_; }

  // Finds this lane's part of the fragments in a stage. inputs_at_ is for the first group and
  // depth. weights_at_ is for each pair of n8 tiles, or for each tile if elements have 4 bytes. The
  // other places follow at compile time, because the swizzle is an exclusive or with bits of the
  // lane only.
  __device__ void LocateFragments() {
    inputs_at_ = Swizzled<kInputVectors>(warp_m_ * 16 + lane_ % 16, lane_ / 16) * 16;
    const int first = warp_n_ * Config::kWarpChannels;
#pragma unroll
    for (int n = 0; n < kFragments; ++n) {
      if constexpr (kWide) {
        const int column = first + n * 8 + lane_ / 4;
        weights_at_[n] = SwizzledWide<kWeightVectors>(lane_ % 4, column / 4) * 16 + column % 4 * 4;
      } else {
        weights_at_[n] = Swizzled<kWeightVectors>(lane_ % 16, first / 8 + n * 2 + lane_ / 16) * 16;
      }
    }
  }

  // Multiplies one step: the offset of `bit`, with inputs and weights in `slot`. The step has
  // `depth` input channels, and at most kDepth are multiplied.
  __device__ void Multiply(int bit, int depth, int slot) {
    const uint32_t stage = SharedAddress(shared_) + slot * Config::kStageBytes;
    uint32_t mine = 0;  // bit g: group g of this warp has the offset
#pragma unroll
    for (int g = 0; g < Config::kGroupsPerWarp; ++g) {
      mine |= (offsets_.group_mask[Group(g)] >> bit & 1) << g;
    }
    if (mine == 0) return;
    // Without branches, the compiler can move the loads of one depth before the products of the
    // depth before.
    if (mine == (1u << Config::kGroupsPerWarp) - 1 && depth >= Config::kDepth) {
      MultiplyGroups<true>(mine, depth, stage);
    } else {
      MultiplyGroups<false>(mine, depth, stage);
    }
  }

  template <bool kAll>
  __device__ void MultiplyGroups(uint32_t mine, int depth, uint32_t stage) {
    uint32_t weights[kFragments];
#pragma unroll
    for (int n = 0; n < kFragments; ++n) weights[n] = stage + Config::kInputBytes + weights_at_[n];
    const uint32_t inputs = stage + inputs_at_;
#pragma unroll
    for (int k = 0; k < Config::kDepth / Config::kMmaDepth; ++k) {
      if (!kAll && k * Config::kMmaDepth >= depth) break;
      uint32_t b[Config::kTilesN][2];
      LoadWeightFragments(weights, k, b);
      const uint32_t in = inputs ^ (k * 32);
#pragma unroll
      for (int g = 0; g < Config::kGroupsPerWarp; ++g) {
        if (!kAll && (mine >> g & 1) == 0) continue;
        uint32_t a[4];
        LoadMatrices(in + g * Config::kWarpsM * 16 * kInputVectors * 16, a);
        if constexpr (kWide) {
#pragma unroll
          for (uint32_t& value : a) value = RoundToTf32(value);
        }
#pragma unroll
        for (int n = 0; n < Config::kTilesN; ++n) Mma<Element>(sum_[g][n], a, b[n][0], b[n][1]);
      }
    }
  }

  __device__ static void LoadWeightFragments(const uint32_t (&weights)[kFragments], int k,
                                             uint32_t (&b)[Config::kTilesN][2]) {
    constexpr int kRowBytes = kWeightVectors * 16;
#pragma unroll
    for (int n = 0; n < kFragments; ++n) {
      const uint32_t at = weights[n] + k * Config::kMmaDepth * kRowBytes;
      if constexpr (kWide) {
        b[n][0] = RoundToTf32(LoadShared(at));
        b[n][1] = RoundToTf32(LoadShared(at + 4 * kRowBytes));
      } else {
        uint32_t r[4];
        LoadMatricesTransposed(at, r);
        b[2 * n][0] = r[0];
        b[2 * n][1] = r[1];
        b[2 * n + 1][0] = r[2];
        b[2 * n + 1][1] = r[3];
      }
    }
  }

  __device__ void Store() {
    WaitCopies<0>();  // the copies of offsets_.rows
    __syncthreads();
    int32_t rows[2 * Config::kGroupsPerWarp];
#pragma unroll
    for (int r = 0; r < 2 * Config::kGroupsPerWarp; ++r) {
      rows[r] = offsets_.rows[Group(r / 2) * 16 + r % 2 * 8 + lane_ / 4];
    }
    StoreTile<Element, 2 * Config::kGroupsPerWarp, Config::kTilesN>(
        args_, part_, rows, channel_ + warp_n_ * Config::kWarpChannels, [this](int r, int n) {
          const float(&sum)[4] = sum_[r / 2][n];
          return r % 2 == 0 ? float2{sum[0], sum[1]} : float2{sum[2], sum[3]};
        });
  }

  const ImplicitGemmArgs& args_;
  char* shared_;
  typename Config::Offsets& offsets_;
  int channel_;
  int part_;  // split_ * k_parts + the index of the block's share of the offsets
  int split_;
  int chunks_;  // steps of an offset
  int warp_m_, warp_n_, lane_;
  int first_offset_ = 0;
  int load_entry_ = 0, load_chunk_ = 0;
  uint32_t inputs_at_, weights_at_[kFragments];
  float sum_[Config::kGroupsPerWarp][Config::kTilesN][4] = {};
};

// Grid: (row tiles x channel tiles, parts). The channel tiles of one row tile are neighbours, so
// that its inputs are still in the L2 cache. The last row tiles come first. In mask order they have
// the most offsets, and a grid should not end with its longest blocks.
template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerMultiprocessor)
    ImplicitGemmBlock(const __grid_constant__ ImplicitGemmArgs args) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) char shared[];
  const unsigned tiles_n = (args.c_out + Config::kChannels - 1) / Config::kChannels;
  const int64_t tile = gridDim.x / tiles_n - 1 - blockIdx.x / tiles_n;
  const int channel = static_cast<int>(blockIdx.x % tiles_n) * Config::kChannels;
  LetNextKernelIn();
  AwaitEarlierKernels();
  BlockTile<Config>(args, shared, tile * Config::kRows, channel, static_cast<int>(blockIdx.y))
      .Run();
#endif
}

template <typename Config>
absl::Status LaunchBlock(const ImplicitGemmArgs& args, const ExecutionContext& context) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.num_outputs, Config::kRows) *
                                        CeilDiv(args.c_out, Config::kChannels)),
                  static_cast<unsigned>(args.num_parts()));
  VOXCONV_LAUNCH_EARLY(ImplicitGemmBlock<Config>, grid, Config::kThreads, Config::kSharedBytes,
                       context, args);
  return absl::OkStatus();
}

// Launches one instance. The warps divide the tile into kWarpsM x kWarpsN parts.
template <typename Element, int kRows, int kChannels, int kWarpsM, int kWarpsN>
absl::Status LaunchTile(const ImplicitGemmArgs& args, const ExecutionContext& context) {
  constexpr BlockRing kRing = RingOfBlock(kChannels);
  constexpr int kDepth = kRing.depth_bytes / static_cast<int>(sizeof(Element));
  using Config = BlockConfig<Element, kRows, kChannels, kDepth, kWarpsM, kWarpsN, kRing.stages>;
  static_assert(Config::kSharedBytes == BlockSharedBytes(kRows, kChannels));
  return LaunchBlock<Config>(args, context);
}

// Launches the instance for `tile`. An element type has instances of 64 and 128 rows, and of 32 to
// 128 channels.
template <typename Element>
absl::Status LaunchBlockOf(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                           const ExecutionContext& context) {
  const bool large = tile.rows == 128;
  VOXCONV_CHECK(large || tile.rows == 64);
  switch (tile.channels) {
    case 32:
      return large ? LaunchTile<Element, 128, 32, 4, 1>(args, context)
                   : LaunchTile<Element, 64, 32, 2, 1>(args, context);
    case 64:
      return large ? LaunchTile<Element, 128, 64, 4, 2>(args, context)
                   : LaunchTile<Element, 64, 64, 1, 4>(args, context);
    case 96:
      return large ? LaunchTile<Element, 128, 96, 4, 2>(args, context)
                   : LaunchTile<Element, 64, 96, 2, 2>(args, context);
    default:
      VOXCONV_CHECK(tile.channels == 128);
      return large ? LaunchTile<Element, 128, 128, 4, 2>(args, context)
                   : LaunchTile<Element, 64, 128, 1, 8>(args, context);
  }
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BLOCK_KERNEL_CUH_
