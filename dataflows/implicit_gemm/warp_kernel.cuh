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
  static constexpr int kBlocksPerMultiprocessor = kSmall ? 4 : 1;  // at least, by registers
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
        lane_(threadIdx.x % 32) {}

  // Copies the block's weights to shared memory; all threads take part.
  static __device__ void LoadWeights(const ImplicitGemmArgs& args, int channel, int split,
                                     char* shared) {
    const int offsets = args.split_ptr[split + 1] - args.split_ptr[split];
    const int rows = offsets * Config::kRowElements;  // those behind are padding: zeros
    const int copies = static_cast<int>(Config::WeightRows(offsets)) * Config::kWeightVectors;
    const Element* weights =
        static_cast<const Element*>(args.weights) +
        int64_t{args.split_ptr[split]} * Config::kRowElements * args.ld_weights + channel;
    for (int i = threadIdx.x; i < copies; i += blockDim.x) {
      const int row = i / Config::kWeightVectors, v = i % Config::kWeightVectors;
      const bool valid = row < rows && channel + v * (16 / Config::kSize) < args.ld_weights;
      const Element* from =
          valid ? weights + int64_t{row} * args.ld_weights + v * (16 / Config::kSize)
                : static_cast<const Element*>(args.weights);
      CopyAsync16(SharedAddress(shared + Position(row, v) * 16), from, valid);
    }
    CommitCopies();
    WaitCopies<0>();
    __syncthreads();
  }

  // The 16 rows from `first` on, whose row of this lane (lane % 16) and mask word 0 the caller has.
  __device__ void Run(int32_t row, uint32_t mask) {
    rows_[0] = __shfl_sync(kAllLanes, row, lane_ / 4);
    rows_[1] = __shfl_sync(kAllLanes, row, lane_ / 4 + 8);
#pragma unroll
    for (int n = 0; n < Config::kTilesN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum_[n][i] = 0.0f;
    }
    if constexpr (Config::kQuads) {
      RunQuads();
    } else {
      for (int word = 0; word * 32 < num_offsets_; ++word) {
        if (word > 0) mask = RowMask(args_, split_, row, word);
        RunOffsets(row, __reduce_or_sync(kAllLanes, mask), word * 32);
      }
    }
    Store();
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
      const char* row = static_cast<const char*>(args_.input) +
                        int64_t{in} * (Config::kRowElements * Config::kSize);
      const int at = Config::kQuads ? 0 : (chunk * 4 + lane_ % 4) * Config::kVectorBytes;
      vector = *reinterpret_cast<const Vector*>(row + at);
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

  // Offsets of one mask word, whose bits `any` some row has. Two offsets are gathered while the
  // two before are multiplied, and the table entries of eight are asked for at once: lanes 0..15
  // hold those of the first of a pair, lanes 16..31 of the second.
  __device__ void RunOffsets(int32_t row, uint32_t any, int base) {
    constexpr int kAhead = 4;
    const int32_t* entries =
        args_.table + int64_t{row < 0 ? 0 : row} * args_.num_offsets + first_offset_ + base;
    while (any != 0) {
      int bits[kAhead][2];
      int32_t in[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          bits[i][j] = __ffs(static_cast<int>(any)) - 1;  // -1: none left
          any &= any - 1;
        }
        const int bit = lane_ < 16 ? bits[i][0] : bits[i][1];
        in[i] = row >= 0 && bit >= 0 ? __ldg(entries + bit) : -1;
      }
      Inputs inputs[2][2];
      GatherPair(in[0], inputs[0]);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (bits[i][0] < 0) break;
        if (i + 1 < kAhead) GatherPair(in[i + 1 < kAhead ? i + 1 : i], inputs[(i + 1) % 2]);
        Multiply((base + bits[i][0]) * Config::kRowElements, inputs[i % 2][0]);
        if (bits[i][1] >= 0) Multiply((base + bits[i][1]) * Config::kRowElements, inputs[i % 2][1]);
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

  __device__ int32_t Entry(int32_t row, int offset) const {
    if (row < 0 || offset >= num_offsets_) return -1;
    return __ldg(args_.table + int64_t{row} * args_.num_offsets + first_offset_ + offset);
  }

  __device__ void RunQuads() {
    constexpr int kAhead = 4;
    const int quads = (num_offsets_ + 3) / 4;
    for (int first = 0; first < quads; first += kAhead) {
      int32_t in[kAhead][2];
      Inputs inputs[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        in[i][0] = Entry(rows_[0], (first + i) * 4 + lane_ % 4);
        in[i][1] = Entry(rows_[1], (first + i) * 4 + lane_ % 4);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) Gather(in[i][0], in[i][1], inputs[i]);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (first + i < quads) Multiply((first + i) * Config::kChunkRows, inputs[i]);
      }
    }
  }

  // sum += inputs * weights from row `weight_row` on.
  __device__ void Multiply(int weight_row, const Inputs& inputs) {
#pragma unroll
    for (int c = 0; c < Config::kChunks; ++c) {
#pragma unroll
      for (int s = 0; s < Config::kSteps; ++s) {
        uint32_t a[4] = {inputs.v[c][0].v[2 * s], inputs.v[c][1].v[2 * s],
                         inputs.v[c][0].v[2 * s + 1], inputs.v[c][1].v[2 * s + 1]};
        const int row = weight_row + c * Config::kChunkRows;
        if constexpr (Config::kSize == 4) {
#pragma unroll
          for (uint32_t& value : a) value = RoundToTf32(value);
          MultiplyTf32(row + 2 * s, a);
        } else {
          MultiplyHalf(row + 4 * s, a);
        }
      }
    }
  }

  // Lane q's share of this product is elements 4 s .. 4 s + 3 of its vector, the first two under
  // the mma's depths 2 q and 2 q + 1, the others under 2 q + 8 and 2 q + 9.
  __device__ void MultiplyHalf(int row, const uint32_t (&a)[4]) {
    constexpr int kLaneRows = Config::kVectorBytes / 2;
    const int mine = row + lane_ % 8 / 2 * kLaneRows + lane_ % 2 + lane_ / 8 % 2 * 2;
#pragma unroll
    for (int n = 0; n < Config::kTilesN; n += 2) {
      uint32_t b[4];
      LoadMatricesTransposed(SharedAddress(weights_ + Position(mine, n + lane_ / 16) * 16), b);
      Mma<Element>(sum_[n], a, b[0], b[1]);
      Mma<Element>(sum_[n + 1], a, b[2], b[3]);
    }
  }

  // Likewise elements 2 s and 2 s + 1, under depths q and q + 4.
  __device__ void MultiplyTf32(int row, const uint32_t (&a)[4]) {
    constexpr int kLaneRows = Config::kVectorBytes / 4;
    const int mine = row + lane_ % 4 * kLaneRows;
#pragma unroll
    for (int n = 0; n < Config::kTilesN; ++n) {
      const int column = n * 8 + lane_ / 4;
      uint32_t b[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int position = Position(mine + half, column / 4) * 4 + column % 4;
        b[half] = RoundToTf32(reinterpret_cast<const uint32_t*>(weights_)[position]);
      }
      Mma<Element>(sum_[n], a, b[0], b[1]);
    }
  }

  __device__ void Store() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (rows_[half] < 0) continue;
#pragma unroll
      for (int n = 0; n < Config::kTilesN; ++n) {
        StorePair<Element>(args_, split_, rows_[half], channel_ + n * 8 + lane_ % 4 * 2,
                           {sum_[n][half * 2], sum_[n][half * 2 + 1]});
      }
    }
  }

  const ImplicitGemmArgs& args_;
  const char* weights_;  // in shared memory
  int channel_;
  int split_;
  int first_offset_, num_offsets_;
  int lane_;
  int32_t rows_[2];
  float sum_[Config::kTilesN][4];
};

// Grid: (blocks, channel tiles, splits); warps take groups of 16 rows in turn, those with the most
// offsets (the last in mask order) first.
template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerMultiprocessor)
    ImplicitGemmWarp(const __grid_constant__ ImplicitGemmArgs args) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) char shared[];
  const int channel = static_cast<int>(blockIdx.y) * Config::kChannels;
  const int split = static_cast<int>(blockIdx.z);
  const int lane = threadIdx.x % 32;
  const int64_t groups = (args.num_outputs + 15) / 16;
  const int64_t warps = int64_t{gridDim.x} * (blockDim.x / 32);
  // Blocks, not warps, stand side by side, so that the heavy groups spread over all of them.
  int64_t group = groups - 1 - (int64_t{threadIdx.x / 32} * gridDim.x + blockIdx.x);
  const auto load = [&](int64_t at, int32_t& row, uint32_t& mask) {
    row = at < 0 ? -1 : OutputRow(args, split, at * 16 + lane % 16);
    mask = Config::kQuads ? 0 : RowMask(args, split, row, 0);
  };
  int32_t row;
  uint32_t mask;
  load(group, row, mask);
  WarpTile<Config>::LoadWeights(args, channel, split, shared);
  WarpTile<Config> tile(args, shared, channel, split);
  while (group >= 0) {
    int32_t next_row;
    uint32_t next_mask;
    load(group - warps, next_row, next_mask);
    tile.Run(row, mask);
    row = next_row;
    mask = next_mask;
    group -= warps;
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
  if (shared > 48 * 1024) {  // or the question below counts no block
    VOXCONV_RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(
        reinterpret_cast<const void*>(&ImplicitGemmWarp<Config>),
        cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
  }
  int resident = 0;
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &resident, ImplicitGemmWarp<Config>, Config::kThreads, static_cast<size_t>(shared)));
  const int64_t blocks = int64_t{std::max(resident, 1)} * AsCuda(context).num_multiprocessors();
  const int64_t groups = CeilDiv(args.num_outputs, 16);
  const dim3 grid(static_cast<unsigned>(std::min(blocks, CeilDiv(groups, Config::kThreads / 32))),
                  static_cast<unsigned>(CeilDiv(args.c_out, Config::kChannels)),
                  static_cast<unsigned>(args.splits));
  VOXCONV_LAUNCH(ImplicitGemmWarp<Config>, grid, Config::kThreads, shared, context, args);
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
