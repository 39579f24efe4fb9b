// SPDX-License-Identifier: Apache-2.0
// Output-stationary implicit GEMM on the CUDA cores: every dtype in IEEE f32 arithmetic, on every
// device. A block owns 64 output rows in mask order and 64 output channels, a thread 4 x 4 of them.
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/dataflows/implicit_gemm/tile_offsets.cuh"

namespace voxconv {
namespace {

constexpr int kRows = 64, kChannels = 64;
constexpr int kDepth = 16;  // input channels of a step
constexpr int kThreads = 256;
constexpr int kLoads = 4;  // elements of the inputs, and of the weights, that a thread loads a step
constexpr int kPad = 4;    // keeps the threads that store a row's inputs in different banks
using Offsets = TileOffsets<kRows, kThreads, false>;

struct Shared {
  Offsets offsets;
  alignas(16) float inputs[2][kDepth][kRows + kPad];
  alignas(16) float weights[2][kDepth][kChannels];
};

// What a thread has read for the next step.
struct Ahead {
  float inputs[kLoads], weights[kLoads];
};

template <typename Element>
class FmaTile {
 public:
  __device__ FmaTile(const ImplicitGemmArgs& args, Shared& shared, int64_t first_row, int channel,
                     int split)
      : args_(args), shared_(shared), channel_(channel), split_(split) {
    shared.offsets.LoadRows(args, split, first_row);
  }

  __device__ void Run() {
    const int chunks = (args_.c_in + kDepth - 1) / kDepth;
    for (int word = 0; word < SplitWords(args_, split_); ++word) {
      const int first = args_.split_ptr[split_] + word * 32;
      const int steps = shared_.offsets.LoadWord(args_, split_, word) * chunks;
      Ahead ahead;
      if (steps > 0) {
        Read(shared_.offsets.list[0], first, 0, ahead);
        Put(0, ahead);
      }
      __syncthreads();
      for (int step = 0; step < steps; ++step) {
        const int next = step + 1;
        if (next < steps) {
          Read(shared_.offsets.list[next / chunks], first, next % chunks * kDepth, ahead);
        }
        Multiply(step % 2);
        if (next < steps) Put(next % 2, ahead);
        __syncthreads();
      }
    }
    Store();
  }

 private:
  __device__ void Read(int bit, int first_offset, int depth, Ahead& ahead) const {
    const int32_t in = shared_.offsets.in[bit][threadIdx.x / 4];
    const int c = depth + threadIdx.x % 4 * kLoads;
    const int64_t stride = args_.input_row_bytes / sizeof(Element);
    const Element* input = static_cast<const Element*>(args_.input);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      ahead.inputs[i] = in >= 0 && c + i < args_.c_in ? Widen(input[in * stride + c + i]) : 0.0f;
    }
    const int row = depth + threadIdx.x / 16;
    const int n = channel_ + threadIdx.x % 16 * kLoads;
    const Element* weights = static_cast<const Element*>(args_.weights) +
                             (int64_t{first_offset + bit} * args_.c_in + row) * args_.ld_weights;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      ahead.weights[i] = row < args_.c_in && n + i < args_.c_out ? Widen(weights[n + i]) : 0.0f;
    }
  }

  __device__ void Put(int slot, const Ahead& ahead) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      shared_.inputs[slot][threadIdx.x % 4 * kLoads + i][threadIdx.x / 4] = ahead.inputs[i];
      shared_.weights[slot][threadIdx.x / 16][threadIdx.x % 16 * kLoads + i] = ahead.weights[i];
    }
  }

  __device__ void Multiply(int slot) {
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      const float4 a =
          reinterpret_cast<const float4&>(shared_.inputs[slot][k][threadIdx.x / 16 * 4]);
      const float4 b =
          reinterpret_cast<const float4&>(shared_.weights[slot][k][threadIdx.x % 16 * 4]);
      const float row[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum_[i][0] = fmaf(row[i], b.x, sum_[i][0]);
        sum_[i][1] = fmaf(row[i], b.y, sum_[i][1]);
        sum_[i][2] = fmaf(row[i], b.z, sum_[i][2]);
        sum_[i][3] = fmaf(row[i], b.w, sum_[i][3]);
      }
    }
  }

  __device__ void Store() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t row = shared_.offsets.rows[threadIdx.x / 16 * 4 + i];
      if (row < 0) continue;
      const int c = channel_ + threadIdx.x % 16 * 4;
      StorePair<Element>(args_, split_, row, c, {sum_[i][0], sum_[i][1]});
      StorePair<Element>(args_, split_, row, c + 2, {sum_[i][2], sum_[i][3]});
    }
  }

  const ImplicitGemmArgs& args_;
  Shared& shared_;
  int channel_;
  int split_;
  float sum_[4][4] = {};
};

// Grid: as of the block kernel.
template <typename Element>
__global__ void __launch_bounds__(kThreads)
    ImplicitGemmFma(const __grid_constant__ ImplicitGemmArgs args) {
  __shared__ Shared shared;
  const unsigned tiles_n = (args.c_out + kChannels - 1) / kChannels;
  const int64_t tile = gridDim.x / tiles_n - 1 - blockIdx.x / tiles_n;
  const int channel = static_cast<int>(blockIdx.x % tiles_n) * kChannels;
  FmaTile<Element>(args, shared, tile * kRows, channel, static_cast<int>(blockIdx.y)).Run();
}

}  // namespace

absl::Status LaunchImplicitGemmFma(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                                   DType dtype, const ExecutionContext& context) {
  VOXCONV_CHECK(tile.rows == kRows && tile.channels == kChannels && args.k_parts == 1);
  const dim3 grid(
      static_cast<unsigned>(CeilDiv(args.num_outputs, kRows) * CeilDiv(args.c_out, kChannels)),
      static_cast<unsigned>(args.splits));
  return WithStoredType(dtype, [&]<typename T>() -> absl::Status {
    VOXCONV_LAUNCH(ImplicitGemmFma<T>, grid, kThreads, 0, context, args);
    return absl::OkStatus();
  });
}

}  // namespace voxconv
