// Output-stationary implicit GEMM on tensor cores, a warp at a time, for few channels.
//
// A warp owns 16 output rows in mask order and kChannels output channels, and gathers their inputs
// straight into the registers of the mma: the order of the products' depth is free, so lane q of
// four takes 16 adjacent bytes (or 8) of a row instead of the scattered elements that the mma's
// layout names, and the weights' rows are picked to match. The weights of all offsets lie in shared
// memory. Nothing is shared between warps after that, so no warp waits for another.
//
// Rows of at most 16 bytes (the first layer's 4 channels) go four offsets at a time: lane q takes
// the row under the q-th of them, which makes one product of four thin ones.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARP_KERNEL_CUH_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARP_KERNEL_CUH_

#include <algorithm>
#include <cstdint>

#include "backends/cuda/cuda_launch.h"
#include "backends/cuda/grid_dependency.cuh"
#include "backends/cuda/tensor_core.cuh"
#include "dataflows/implicit_gemm/tile_offsets.cuh"

namespace voxconv {

// kVectorBytes: what a lane takes of a row at once, 8 or 16. kChunks: times that, four lanes side
// by side, make a row. kQuads: rows of one vector, four offsets at a time.
template <typename ElementType, int kVectorBytesValue, int kChunksValue, int kChannelsValue,
          bool kQuadsValue>
struct WarpConfig {
  using Element = ElementType;
  static constexpr int kVectorBytes = kVectorBytesValue, kChunks = kChunksValue;
  static constexpr int kChannels = kChannelsValue;
  static constexpr bool kQuads = kQuadsValue;
  static constexpr int kSize = static_cast<int>(sizeof(Element));
  static constexpr int kTilesN = kChannels / 8;
  static constexpr int kWords = kVectorBytes / 4;
  static constexpr int kSteps = kVectorBytes / 8;  // products of one vector
  static constexpr int kRowElements = kVectorBytes / kSize * (kQuads ? 1 : 4 * kChunks);
  static constexpr int kChunkRows = 4 * kVectorBytes / kSize;  // weight rows of a chunk
  static constexpr int kWeightVectors = kChannels * kSize / 16;
  static constexpr int kWeightRowBytes = kChannels * kSize;
  // Few registers let more warps wait for their rows at once.
  static constexpr bool kSmall = kChunks * kVectorBytes <= 16 && kChannels <= 32;
  static constexpr int kThreads = kSmall ? 256 : 512;
  static constexpr int kBlocksPerMultiprocessor = kSmall ? 3 : 1;  // at least, by registers
  static_assert(kChannels % 16 == 0 && (!kQuads || kChunks == 1));

  // Rows of weights in shared memory for `offsets` offsets.
  static constexpr int64_t WeightRows(int64_t offsets) {
    return kQuads ? (offsets + 3) / 4 * kChunkRows : offsets * kRowElements;
  }
  static constexpr int64_t SharedBytes(int64_t offsets) {
    return WeightRows(offsets) * kWeightRowBytes;
  }
};

template <typename Config>
class WarpTile {
  using Element = typename Config::Element;
  static constexpr uint32_t kAllLanes = ~0u;
  static constexpr int kFragments = Config::kSize == 4 ? Config::kTilesN : Config::kTilesN / 2;
  using Vector = Pack<uint32_t, Config::kWords>;
  // Of rows r and r + 8, r = lane / 4.
  struct Inputs {
    Vector v[Config::kChunks][2];
  };

 public:
  __device__ WarpTile(const ImplicitGemmArgs& args, const char* weights, int channel, int split)
      : args_(args),
        weights_(weights),
        channel_(channel),
        split_(split),
        first_offset_(args.split_ptr[split]),
        num_offsets_(args.split_ptr[split + 1] - args.split_ptr[split]),
        lane_(threadIdx.x % 32),
        input_(KeepWhole(static_cast<const char*>(args.input) +
                         (Config::kQuads ? 0 : lane_ % 4 * Config::kVectorBytes))) {
    LocateFragments();
  }

  // Copies the block's weights to shared memory; all threads take part.
  static __device__ void LoadWeights(const ImplicitGemmArgs& args, int channel, int split,
                                     char* shared) {
    const int offsets = args.split_ptr[split + 1] - args.split_ptr[split];
    const int rows = offsets * Config::kRowElements;  // those behind are padding: zeros
    constexpr int kVectors = Config::kWeightVectors, kStep = Config::kThreads / kVectors;
    const int v = threadIdx.x % kVectors;
    const int n = channel + v * (16 / Config::kSize);
    int row = threadIdx.x / kVectors;
    const Element* weights =
        static_cast<const Element*>(args.weights) +
        (int64_t{args.split_ptr[split]} * Config::kRowElements + row) * args.ld_weights + n;
    const int valid_rows = n < args.ld_weights ? rows : 0;
    for (; row < Config::WeightRows(offsets); row += kStep) {
      CopyAsync16(SharedAddress(shared) + Position(row, v) * 16, weights, row < valid_rows);
      weights += kStep * int64_t{args.ld_weights};
    }
    CommitCopies();
    WaitCopies<0>();
    __syncthreads();
  }

  // The 16 rows of which this lane's (lane % 16) is at `position`; the caller has its mask word 0.
  __device__ void Run(int32_t row, int64_t position, uint32_t mask) {
#pragma unroll
    for (int n = 0; n < Config::kTilesN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum_[n][i] = 0.0f;
    }
    if constexpr (Config::kQuads) {
      RunQuads(row, position - lane_ % 16);
    } else {
      for (int word = 0; word * 32 < num_offsets_; ++word) {
        if (word > 0) mask = RowMask(args_, split_, row, position, word);
        RunOffsets(row, position, __reduce_or_sync(kAllLanes, mask), word * 32);
      }
    }
    Store(row);
  }

 private:
  // Position, in vectors, of vector `v` of weight row `row`, so that the rows that one product
  // reads together meet different banks.
  static __device__ int Position(int row, int v) {
    constexpr int kVectors = Config::kWeightVectors;
    constexpr int kLaneRows = Config::kVectorBytes / Config::kSize;  // weight rows of a lane
    const int q = row / kLaneRows % 4;
    if constexpr (Config::kSize == 4) {
      return row * kVectors + (v ^ (q * 2 % (kVectors < 8 ? kVectors : 8)));
    } else if constexpr (kVectors % 8 == 0) {
      return row * kVectors + (v ^ (q * 2 + row % 2));
    } else if constexpr (kVectors % 4 == 0) {
      return row * kVectors + (v ^ q);
    } else {
      return row * kVectors + (v ^ (q % 2));
    }
  }

  __device__ Vector LoadVector(int32_t in, int chunk) const {
    Vector vector = {};
    if (in >= 0) {
      const char* row = RowAddress(input_, in, Config::kRowElements * Config::kSize);
      vector = *reinterpret_cast<const Vector*>(row + chunk * 4 * Config::kVectorBytes);
    }
    return vector;
  }

  __device__ void Gather(int32_t in0, int32_t in1, Inputs& inputs) const {
#pragma unroll
    for (int c = 0; c < Config::kChunks; ++c) {
      inputs.v[c][0] = LoadVector(in0, c);
      inputs.v[c][1] = LoadVector(in1, c);
    }
  }

  // The highest bit of `left`, which goes; -1 where there is none. The lowest would take an
  // instruction more, and instructions are what a group with many offsets waits for.
  __device__ static int TakeBit(uint32_t& left) {
    const int bit = 31 - __clz(static_cast<int>(left));
    left ^= __funnelshift_lc(0u, 1u, bit);  // 1 << bit, 0 where that is past the word
    return bit;
  }
  // The entries of rows lane % 16 under the next bit of `left` (lanes 0..15) and the one after.
  __device__ static int32_t TakeEntries(const char* entries, uint32_t stride, uint32_t& left) {
    const int first = TakeBit(left), second = TakeBit(left);
    const int bit = threadIdx.x % 32 < 16 ? first : second;
    if (bit < 0) return -1;
    return __ldg(
        reinterpret_cast<const int32_t*>(RowAddress(entries, bit * sizeof(int32_t), stride)));
  }

  // Offsets of one mask word, whose bits `any` some row has, two at a time: while a pair is
  // multiplied, the inputs of the next are on their way, and the table entries of the one after.
  // Rows past the end take those of another, whose products nobody stores.
  __device__ void RunOffsets(int32_t row, int64_t position, uint32_t any, int base) {
    if (any == 0) return;
    const uint32_t stride = static_cast<uint32_t>(EntryStride(args_));
    const char* entries =
        KeepWhole(EntriesOf(args_, row, position) + (first_offset_ + base) * int64_t{stride});
    uint32_t left = any, unread = any;  // not multiplied; entries not asked for
    Inputs inputs[2][2];
    int32_t first = TakeEntries(entries, stride, unread);
    int32_t second = TakeEntries(entries, stride, unread);
    GatherPair(first, inputs[0]);
    while (true) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int32_t third = TakeEntries(entries, stride, unread);
        const int bits[2] = {TakeBit(left), TakeBit(left)};
        if (left != 0) GatherPair(second, inputs[1 - i]);
        Multiply((base + bits[0]) * Config::kRowElements, inputs[i][0]);
        if (bits[1] >= 0) Multiply((base + bits[1]) * Config::kRowElements, inputs[i][1]);
        if (left == 0) return;
        second = third;
      }
    }
  }

  __device__ void GatherPair(int32_t in, Inputs (&inputs)[2]) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      Gather(__shfl_sync(kAllLanes, in, j * 16 + lane_ / 4),
             __shfl_sync(kAllLanes, in, j * 16 + lane_ / 4 + 8), inputs[j]);
    }
  }

  __device__ void RunQuads(int32_t lane_row, int64_t first_position) {
    constexpr int kAhead = 4;
    const int quads = (num_offsets_ + 3) / 4;
    const int q = lane_ % 4;
    const int64_t stride = EntryStride(args_);
    const int32_t* entries[2];
    int limit[2];  // offsets that the row has
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t row = __shfl_sync(kAllLanes, lane_row, lane_ / 4 + half * 8);
      entries[half] = EntriesOf(args_, row, first_position + lane_ / 4 + half * 8) +
                      (first_offset_ + q) * stride;
      limit[half] = row < 0 ? 0 : num_offsets_ - q;
    }
    for (int first = 0; first < quads; first += kAhead) {
      int32_t in[kAhead][2];
      Inputs inputs[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = (first + i) * 4;
          in[i][half] = at < limit[half] ? __ldg(entries[half] + at * stride) : -1;
        }
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) Gather(in[i][0], in[i][1], inputs[i]);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (first + i < quads) Multiply((first + i) * Config::kChunkRows, inputs[i]);
      }
    }
  }

  // Where this lane's part of the weights' fragments lies behind the row that a product starts at,
  // for each pair of n8 tiles (each tile, for 4-byte elements). The swizzle depends on the lane
  // alone.
  //
  // 16-bit: lane q's share of product s of a vector is elements 4 s .. 4 s + 3, the first two under
  // the mma's depths 2 q and 2 q + 1, the others under 2 q + 8 and 2 q + 9.
  // tf32: elements 2 s and 2 s + 1, under depths q and q + 4.
  __device__ void LocateFragments() {
    constexpr int kLaneRows = Config::kVectorBytes / Config::kSize;
#pragma unroll
    for (int n = 0; n < kFragments; ++n) {
      if constexpr (Config::kSize == 4) {
        const int column = n * 8 + lane_ / 4;
        at_[n] = SharedAddress(weights_) + Position(lane_ % 4 * kLaneRows, column / 4) * 16 +
                 column % 4 * 4;
      } else {
        const int row = lane_ % 8 / 2 * kLaneRows + lane_ % 2 + lane_ / 8 % 2 * 2;
        at_[n] = SharedAddress(weights_) + Position(row, n * 2 + lane_ / 16) * 16;
      }
    }
  }

  // sum += inputs * weights from row `weight_row` on.
  __device__ void Multiply(int weight_row, const Inputs& inputs) {
    const uint32_t rows = weight_row * Config::kWeightRowBytes;
#pragma unroll
    for (int c = 0; c < Config::kChunks; ++c) {
#pragma unroll
      for (int s = 0; s < Config::kSteps; ++s) {
        uint32_t a[4] = {inputs.v[c][0].v[2 * s], inputs.v[c][1].v[2 * s],
                         inputs.v[c][0].v[2 * s + 1], inputs.v[c][1].v[2 * s + 1]};
        constexpr int kStepRows = Config::kSize == 4 ? 2 : 4;
        const int offset = (c * Config::kChunkRows + s * kStepRows) * Config::kWeightRowBytes;
        MultiplyStep(a, rows + offset);
      }
    }
  }

  // sum += a * the weights at `offset` behind those that LocateFragments found.
  __device__ void MultiplyStep(uint32_t (&a)[4], uint32_t offset) {
    if constexpr (Config::kSize == 4) {
#pragma unroll
      for (uint32_t& value : a) value = RoundToTf32(value);
#pragma unroll
      for (int n = 0; n < kFragments; ++n) {
        const uint32_t at = at_[n] + offset;
        Mma<Element>(sum_[n], a, RoundToTf32(LoadShared(at)),
                     RoundToTf32(LoadShared(at + Config::kWeightRowBytes)));
      }
    } else {
      constexpr int kAhead = kFragments < 2 ? 1 : 2;  // loads before the first product
#pragma unroll
      for (int n = 0; n < kFragments; n += kAhead) {
        uint32_t b[kAhead][4];
#pragma unroll
        for (int j = 0; j < kAhead; ++j) LoadMatricesTransposed(at_[n + j] + offset, b[j]);
#pragma unroll
        for (int j = 0; j < kAhead; ++j) {
          Mma<Element>(sum_[2 * (n + j)], a, b[j][0], b[j][1]);
          Mma<Element>(sum_[2 * (n + j) + 1], a, b[j][2], b[j][3]);
        }
      }
    }
  }

  __device__ void Store(int32_t row) {
    const int32_t rows[2] = {__shfl_sync(kAllLanes, row, lane_ / 4),
                             __shfl_sync(kAllLanes, row, lane_ / 4 + 8)};
    StoreTile<Element, 2, Config::kTilesN>(args_, split_, rows, channel_, [this](int r, int n) {
      return r == 0 ? float2{sum_[n][0], sum_[n][1]} : float2{sum_[n][2], sum_[n][3]};
    });
  }

  const ImplicitGemmArgs& args_;
  const char* weights_;  // in shared memory
  int channel_;
  int split_;
  int first_offset_, num_offsets_;
  int lane_;
  const char* input_;  // this lane's part of a row, of row 0
  uint32_t at_[kFragments];
  float sum_[Config::kTilesN][4];
};

// Grid: (blocks, channel tiles, splits); warps take groups of 16 rows in turn, those with the most
// offsets (the last in mask order) first. If there are two turns, the second goes backwards: whoever
// had most gets least. Where there are more, turns even out by themselves, and going forwards keeps
// the neighbours' rows in the cache.
template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerMultiprocessor)
    ImplicitGemmWarp(const __grid_constant__ ImplicitGemmArgs args) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) char shared[];
  const int channel = static_cast<int>(blockIdx.y) * Config::kChannels;
  const int split = static_cast<int>(blockIdx.z);
  const int lane = threadIdx.x % 32;
  // Rows, and with them groups, are counted in 32 bits.
  const int groups = static_cast<int>((args.num_outputs + 15) / 16);
  const int warps = static_cast<int>(gridDim.x * (blockDim.x / 32));
  // Blocks, not warps, stand side by side, so that the heavy groups spread over all of them.
  const int place = static_cast<int>(threadIdx.x / 32 * gridDim.x + blockIdx.x);
  int group = groups - 1 - place;
  int step = groups <= 2 * warps ? 2 * (warps - place) - 1 : warps;  // to the next turn's group
  const auto load = [&](int at, int32_t& row, uint32_t& mask) {
    const int64_t position = int64_t{at} * 16 + lane % 16;
    row = at < 0 ? -1 : OutputRow(args, split, position);
    mask = Config::kQuads || at < 0 ? 0 : RowMask(args, split, row, position, 0);
  };
  int32_t row;
  uint32_t mask;
  LetNextKernelIn();
  if (!args.settled) AwaitEarlierKernels();
  load(group, row, mask);
  WarpTile<Config>::LoadWeights(args, channel, split, shared);
  AwaitEarlierKernels();
  WarpTile<Config> tile(args, shared, channel, split);
  while (group >= 0) {
    int32_t next_row;
    uint32_t next_mask;
    load(group - step, next_row, next_mask);
    tile.Run(row, int64_t{group} * 16 + lane % 16, mask);
    row = next_row;
    mask = next_mask;
    group -= step;
    step = 2 * warps - step;
  }
#endif
}

template <typename Config>
absl::Status LaunchWarp(const ImplicitGemmArgs& args, const ExecutionContext& context) {
  int most = 0;
  for (int s = 0; s < args.splits; ++s) {
    most = std::max(most, args.split_ptr[s + 1] - args.split_ptr[s]);
  }
  const int64_t shared = Config::SharedBytes(most);
  VOXCONV_ASSIGN_OR_RETURN(const int resident,
                           ResidentBlocks(reinterpret_cast<const void*>(&ImplicitGemmWarp<Config>),
                                          Config::kThreads, static_cast<size_t>(shared), context));
  const int64_t blocks = int64_t{std::max(resident, 1)} * AsCuda(context).num_multiprocessors();
  const int64_t groups = CeilDiv(args.num_outputs, 16);
  const dim3 grid(static_cast<unsigned>(std::min(blocks, CeilDiv(groups, Config::kThreads / 32))),
                  static_cast<unsigned>(CeilDiv(args.c_out, Config::kChannels)),
                  static_cast<unsigned>(args.splits));
  VOXCONV_LAUNCH_EARLY(ImplicitGemmWarp<Config>, grid, Config::kThreads, shared, context, args);
  return absl::OkStatus();
}

template <typename Element, int kVectorBytes, int kChunks, bool kQuads>
absl::Status LaunchWarpRows(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                            const ExecutionContext& context) {
  switch (tile.channels) {
    case 16:
      return LaunchWarp<WarpConfig<Element, kVectorBytes, kChunks, 16, kQuads>>(args, context);
    case 32:
      return LaunchWarp<WarpConfig<Element, kVectorBytes, kChunks, 32, kQuads>>(args, context);
    default:
      VOXCONV_CHECK(tile.channels == 64);
      return LaunchWarp<WarpConfig<Element, kVectorBytes, kChunks, 64, kQuads>>(args, context);
  }
}

// The instances of one element type, by the bytes of an input row.
template <typename Element>
absl::Status LaunchWarpOf(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                          const ExecutionContext& context) {
  switch (args.c_in * static_cast<int>(sizeof(Element))) {
    case 8:
      return LaunchWarpRows<Element, 8, 1, true>(tile, args, context);
    case 16:
      return LaunchWarpRows<Element, 16, 1, true>(tile, args, context);
    case 32:
      return LaunchWarpRows<Element, 8, 1, false>(tile, args, context);
    case 64:
      return LaunchWarpRows<Element, 16, 1, false>(tile, args, context);
    default:
      VOXCONV_CHECK(args.c_in * sizeof(Element) == 128);
      return LaunchWarpRows<Element, 16, 2, false>(tile, args, context);
  }
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARP_KERNEL_CUH_
