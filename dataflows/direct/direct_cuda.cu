// SPDX-License-Identifier: Apache-2.0
// Naive: a thread has one channel of an output row. Channel: so has it, and a thread block has one
// channel, whose weights are in shared memory. Cached: thread blocks bring the weights of a
// few channels to shared memory, piece by piece, for a few hundred rows. All add in the same
// order, in f32.
#include <algorithm>
#include <memory>
#include <utility>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/dataflows/direct/direct.h"
#include "voxconv/dataflows/direct/register.h"

namespace voxconv {
namespace {

constexpr int kThreads = 256;
constexpr int kNaiveChannels = 32;  // of a thread block
constexpr int kNaiveRows = kThreads / kNaiveChannels;
constexpr int64_t kIndexBytes = sizeof(int32_t);

// All in device memory.
template <typename T>
struct DirectArgs {
  const int32_t* table;  // [num_rows, num_offsets]
  const T* input;        // [N_in, c_in]
  const T* weights;      // [num_offsets, c_in, c_out]
  T* output;             // [num_rows, c_out]
  int64_t num_rows, num_offsets, c_in, c_out;
};

// A thread of the cached kernel has four channels of kRows output rows.
template <int kChannelCount>
struct CachedTile {
  static constexpr int kChannels = kChannelCount;
  static constexpr int kLanes = kChannels / 4;
  static constexpr int kRowThreads = kThreads / kLanes;
  static constexpr int kRows = 4;
  static constexpr int kBlockRows = kRowThreads * kRows;
  static constexpr int kDepth = 8192 / kChannels;  // rows of the weights in shared memory
};

// Few output channels.
bool IsNarrow(const ConvShape& shape) { return shape.c_out <= CachedTile<16>::kChannels; }

// Books nothing.
class CudaPlan final : public DataflowPlan {
 public:
  CudaPlan(DirectWeights weights, const KernelMap& map, const ConvShape& shape) {
    kernel_ = weights == DirectWeights::kNaive     ? "naive"
              : weights == DirectWeights::kChannel ? "a channel a block"
                                                   : "cached weights";
    if (map.counts_known()) Count(weights, map, shape);  // counting would wait for the device
  }

 private:
  // A block of channels reads the row of the table and the inputs anew; the weights are read once a
  // pair and channel, or once a thread block.
  void Count(DirectWeights weights, const KernelMap& map, const ConvShape& shape) {
    const int64_t size = SizeOf(shape.types.input);
    const int64_t rows = map.num_outputs();
    const bool narrow = IsNarrow(shape);
    const int64_t cached = narrow ? CachedTile<16>::kChannels : CachedTile<32>::kChannels;
    const int64_t channels = weights == DirectWeights::kNaive     ? kNaiveChannels
                             : weights == DirectWeights::kChannel ? 1
                                                                  : cached;
    const int64_t tile_rows = narrow ? CachedTile<16>::kBlockRows : CachedTile<32>::kBlockRows;
    const int64_t block_rows = weights == DirectWeights::kChannel ? kThreads : tile_rows;
    const int64_t matrix_bytes = shape.c_in * shape.c_out * size;
    const int64_t weight_bytes = weights == DirectWeights::kNaive
                                     ? map.num_pairs() * matrix_bytes
                                     : CeilDiv(rows, block_rows) * map.num_offsets() * matrix_bytes;
    work_.true_pairs = work_.padded_pairs = map.num_pairs();
    work_.bytes_read = CeilDiv(shape.c_out, channels) * (rows * map.num_offsets() * kIndexBytes +
                                                         map.num_pairs() * shape.c_in * size) +
                       weight_bytes;
    work_.bytes_written = rows * shape.c_out * size;
  }
};

// Luo and Lai's Algorithm 2. Neighbouring threads have neighbouring channels.
template <typename T>
__global__ void __launch_bounds__(kThreads) NaiveKernel(const DirectArgs<T> args) {
  const int64_t row = int64_t{blockIdx.x} * kNaiveRows + threadIdx.x / kNaiveChannels;
  const int64_t channel = int64_t{blockIdx.y} * kNaiveChannels + threadIdx.x % kNaiveChannels;
  if (row >= args.num_rows || channel >= args.c_out) return;
  float sum = 0;
  for (int64_t k = 0; k < args.num_offsets; ++k) {
    const int32_t neighbour = args.table[row * args.num_offsets + k];
    if (neighbour < 0) continue;
    const T* x = args.input + neighbour * args.c_in;
    const T* w = args.weights + k * args.c_in * args.c_out + channel;
    for (int64_t c = 0; c < args.c_in; ++c) sum = fmaf(Widen(x[c]), Widen(w[c * args.c_out]), sum);
  }
  args.output[row * args.c_out + channel] = static_cast<T>(sum);
}

// The paper's optimised kernel: a row of blocks for each output channel. Blocks go on with further
// channels where a grid has no more.
template <typename T>
__global__ void __launch_bounds__(kThreads) ChannelKernel(const DirectArgs<T> args) {
  constexpr int kDepth = 4096;
  __shared__ float weights[kDepth];
  const int64_t row = GlobalThread();
  const int64_t weight_rows = args.num_offsets * args.c_in;
  for (int64_t channel = blockIdx.y; channel < args.c_out; channel += gridDim.y) {
    float sum = 0;
    for (int64_t base = 0; base < weight_rows; base += kDepth) {
      const auto depth = static_cast<int>(min(int64_t{kDepth}, weight_rows - base));
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < depth; i += kThreads) {
        weights[i] = Widen(args.weights[(base + i) * args.c_out + channel]);
      }
      __syncthreads();
      if (row >= args.num_rows) continue;
      for (int64_t k = base / args.c_in; k * args.c_in < base + depth; ++k) {
        const int32_t neighbour = __ldg(args.table + row * args.num_offsets + k);
        if (neighbour < 0) continue;
        const T* x = args.input + neighbour * args.c_in;
        const int64_t first = k * args.c_in;
        const int64_t begin = max(base - first, int64_t{0});
        const int64_t end = min(base + depth - first, args.c_in);
        for (int64_t c = begin; c < end; ++c) {
          sum = fmaf(Widen(x[c]), weights[first - base + c], sum);
        }
      }
    }
    if (row < args.num_rows) args.output[row * args.c_out + channel] = static_cast<T>(sum);
  }
}

// Adds the products of weight rows [base, base + depth), which are in shared memory: a row is one
// input channel of one offset.
template <typename T, typename Tile>
__device__ __forceinline__ void AddRow(const DirectArgs<T>& args,
                                       const float4 (&weights)[Tile::kDepth][Tile::kLanes],
                                       int64_t row, int64_t base, int64_t depth, float4& sum) {
  const int lane = static_cast<int>(threadIdx.x) % Tile::kLanes;
  for (int64_t k = base / args.c_in; k * args.c_in < base + depth; ++k) {
    const int32_t neighbour = __ldg(args.table + row * args.num_offsets + k);
    if (neighbour < 0) continue;
    const T* x = args.input + neighbour * args.c_in;
    const int64_t first = k * args.c_in;  // weight row of input channel 0
    const int begin = static_cast<int>(max(base - first, int64_t{0}));
    const int end = static_cast<int>(min(base + depth - first, args.c_in));
    const int shift = static_cast<int>(first - base);
#pragma unroll 4
    for (int c = begin; c < end; ++c) {
      const float value = Widen(x[c]);
      const float4 w = weights[shift + c][lane];
      sum.x = fmaf(value, w.x, sum.x);
      sum.y = fmaf(value, w.y, sum.y);
      sum.z = fmaf(value, w.z, sum.z);
      sum.w = fmaf(value, w.w, sum.w);
    }
  }
}

template <typename T, typename Tile>
__global__ void __launch_bounds__(kThreads) CachedKernel(const DirectArgs<T> args) {
  __shared__ float4 weights[Tile::kDepth][Tile::kLanes];
  const int64_t first_row = int64_t{blockIdx.x} * Tile::kBlockRows + threadIdx.x / Tile::kLanes;
  const int64_t channel = int64_t{blockIdx.y} * Tile::kChannels;
  const int64_t weight_rows = args.num_offsets * args.c_in;
  float4 sum[Tile::kRows] = {};
  for (int64_t base = 0; base < weight_rows; base += Tile::kDepth) {
    const int depth = static_cast<int>(min(int64_t{Tile::kDepth}, weight_rows - base));
    __syncthreads();
    for (int i = threadIdx.x; i < depth * Tile::kChannels; i += kThreads) {
      const int64_t column = channel + i % Tile::kChannels;
      reinterpret_cast<float*>(weights)[i] =
          column < args.c_out
              ? Widen(args.weights[(base + i / Tile::kChannels) * args.c_out + column])
              : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
      const int64_t row = first_row + i * Tile::kRowThreads;
      if (row < args.num_rows) AddRow<T, Tile>(args, weights, row, base, depth, sum[i]);
    }
  }
  const int64_t first_channel = channel + static_cast<int>(threadIdx.x) % Tile::kLanes * 4;
#pragma unroll
  for (int i = 0; i < Tile::kRows; ++i) {
    const int64_t row = first_row + i * Tile::kRowThreads;
    if (row >= args.num_rows) continue;
    const float values[4] = {sum[i].x, sum[i].y, sum[i].z, sum[i].w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (first_channel + j >= args.c_out) continue;
      args.output[row * args.c_out + first_channel + j] = static_cast<T>(values[j]);
    }
  }
}

template <typename T, typename Tile>
absl::Status LaunchCached(const DirectArgs<T>& args, const ExecutionContext& context) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.num_rows, Tile::kBlockRows)),
                  static_cast<unsigned>(CeilDiv(args.c_out, Tile::kChannels)));
  VOXCONV_LAUNCH((CachedKernel<T, Tile>), grid, kThreads, 0, context, args);
  return absl::OkStatus();
}

class DirectCuda final : public Direct {
 public:
  using Direct::Direct;

 protected:
  Capability DoCapability(Pass, const ConvShape& shape) const override {
    return {.support = UniformTypes(kDirectName, shape)};
  }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(Pass, const PreparedMap& map,
                                                       const ConvShape& shape,
                                                       const ExecutionContext&) const override {
    return std::make_unique<CudaPlan>(weights(), map.map(), shape);
  }

  absl::Status DoForward(const DataflowPlan& plan, const PreparedMap& map, const ForwardArgs& args,
                         const Workspace&, const ExecutionContext& context) const override {
    const StageScope stage(context, Stage::kFused);
    const auto launch = [&]<typename T>() {
      return Launch<T>(plan.shape(), map.map(), args, context);
    };
    return WithStoredType(plan.shape().types.input, launch);
  }

 private:
  template <typename T>
  absl::Status Launch(const ConvShape& shape, const KernelMap& map, const ForwardArgs& forward,
                      const ExecutionContext& context) const {
    const DirectArgs<T> args{.table = map.table().table.data(),
                             .input = static_cast<const T*>(forward.input.data),
                             .weights = static_cast<const T*>(forward.weights.data),
                             .output = static_cast<T*>(forward.output.data),
                             .num_rows = map.num_outputs(),
                             .num_offsets = map.num_offsets(),
                             .c_in = shape.c_in,
                             .c_out = shape.c_out};
    if (weights() == DirectWeights::kCached) {
      return IsNarrow(shape) ? LaunchCached<T, CachedTile<16>>(args, context)
                             : LaunchCached<T, CachedTile<32>>(args, context);
    }
    if (weights() == DirectWeights::kChannel) {
      constexpr int64_t kMostAlongY = 65535;
      dim3 grid = GridFor(args.num_rows, kThreads);
      grid.y = static_cast<unsigned>(std::min(args.c_out, kMostAlongY));
      VOXCONV_LAUNCH(ChannelKernel<T>, grid, kThreads, 0, context, args);
      return absl::OkStatus();
    }
    const dim3 grid(static_cast<unsigned>(CeilDiv(args.num_rows, kNaiveRows)),
                    static_cast<unsigned>(CeilDiv(args.c_out, kNaiveChannels)));
    VOXCONV_LAUNCH(NaiveKernel<T>, grid, kThreads, 0, context, args);
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status RegisterDirectCuda(Registry& registry) {
  return registry.dataflows().Implement(
      kDirectName, BackendKind::kCuda,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Dataflow>> {
        return std::make_unique<DirectCuda>(std::move(options));
      });
}

}  // namespace voxconv
