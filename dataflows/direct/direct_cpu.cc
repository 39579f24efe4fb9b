// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/core/integer.h"
#include "voxconv/dataflows/direct/direct.h"
#include "voxconv/dataflows/direct/register.h"

namespace voxconv {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kIndexBytes = sizeof(int32_t);
// Output rows of a task: enough to pay for bringing a block of weights into its cache.
constexpr int64_t kRowsPerTask = 256;
// The paper gives a thread block one output channel; a vector of channels is the CPU's unit.
constexpr int64_t kBlockChannels = 16;
// A block of weights must leave room for inputs in a second-level cache.
constexpr int64_t kBlockBytes = 128 << 10;

class CpuPlan final : public DataflowPlan {
 public:
  CpuPlan(DirectWeights weights, const KernelMap& map, const ConvShape& shape)
      : channel_blocks_(CeilDiv(shape.c_out, kBlockChannels)),
        block_offsets_(
            std::max<int64_t>(kBlockBytes / (shape.c_in * kBlockChannels * kFloatBytes), 1)) {
    kernel_ = weights == DirectWeights::kNaive     ? "naive"
              : weights == DirectWeights::kChannel ? "a channel at a time"
                                                   : "cached weights";
    if (weights == DirectWeights::kChannel) {
      const int64_t size = shape.c_out * map.num_offsets() * shape.c_in;
      packed_slot_ = booking_.Book<float>(size);
      CountByChannel(map, shape, size * kFloatBytes);
    } else if (weights == DirectWeights::kCached) {
      const int64_t packed_size = channel_blocks_ * map.num_offsets() * shape.c_in * kBlockChannels;
      packed_slot_ = booking_.Book<float>(packed_size);
      CountCached(map, shape, packed_size * kFloatBytes);
    } else {
      CountNaive(map, shape);
    }
    work_.true_pairs = work_.padded_pairs = map.num_pairs();
    work_.launches = 1;
    work_.bytes_written += map.num_outputs() * shape.c_out * kFloatBytes;
  }

  int64_t channel_blocks() const { return channel_blocks_; }
  int64_t block_offsets() const { return block_offsets_; }
  // kCached: [channel_blocks, K, c_in, kBlockChannels]. kChannel: [c_out, K, c_in].
  int packed_slot() const { return packed_slot_; }

 private:
  // Every channel of a row reads the row of the table, the inputs and its weights anew.
  void CountNaive(const KernelMap& map, const ConvShape& shape) {
    work_.bytes_read = shape.c_out * (map.num_outputs() * map.num_offsets() * kIndexBytes +
                                      2 * map.num_pairs() * shape.c_in * kFloatBytes);
  }

  // Every channel reads the table and the inputs anew, and its weights once a task.
  void CountByChannel(const KernelMap& map, const ConvShape& shape, int64_t packed_bytes) {
    work_.bytes_read = packed_bytes +
                       shape.c_out * (map.num_outputs() * map.num_offsets() * kIndexBytes +
                                      map.num_pairs() * shape.c_in * kFloatBytes) +
                       CeilDiv(map.num_outputs(), kRowsPerTask) * packed_bytes;
    work_.bytes_written = packed_bytes;
  }

  // Table and inputs are read once a block of channels, weights once a task.
  void CountCached(const KernelMap& map, const ConvShape& shape, int64_t packed_bytes) {
    work_.bytes_read = map.num_offsets() * shape.c_in * shape.c_out * kFloatBytes +
                       channel_blocks_ * (map.num_outputs() * map.num_offsets() * kIndexBytes +
                                          map.num_pairs() * shape.c_in * kFloatBytes) +
                       CeilDiv(map.num_outputs(), kRowsPerTask) * packed_bytes;
    work_.bytes_written = packed_bytes;
  }

  int64_t channel_blocks_;
  int64_t block_offsets_;  // offsets whose weights stay in cache together
  int packed_slot_ = 0;
};

// Luo and Lai's Algorithm 2 for one output row: a strided walk through the weights a channel.
void ComputeRowNaive(const ConvShape& shape, absl::Span<const int32_t> neighbours,
                     const float* input, const float* weights, float* output) {
  for (int64_t j = 0; j < shape.c_out; ++j) {
    float sum = 0;
    for (size_t k = 0; k < neighbours.size(); ++k) {
      if (neighbours[k] < 0) continue;
      const float* x = input + neighbours[k] * shape.c_in;
      const float* w = weights + static_cast<int64_t>(k) * shape.c_in * shape.c_out + j;
      for (int64_t c = 0; c < shape.c_in; ++c) sum += x[c] * w[c * shape.c_out];
    }
    output[j] = sum;
  }
}

// Four channels. Left to itself the compiler vectorises the loop over input channels, with a
// shuffle for every product.
using Float4 = float __attribute__((vector_size(16)));
constexpr int kBlockVectors = kBlockChannels / 4;
using ChannelBlock = std::array<float, kBlockChannels>;

// Adds the offsets of one block to kBlockChannels channels of one row; `weights` is
// [neighbours, c_in, kBlockChannels].
void AddBlock(int64_t c_in, absl::Span<const int32_t> neighbours, const float* input,
              const float* weights, ChannelBlock& total) {
  Float4 sum[kBlockVectors];
  std::memcpy(sum, total.data(), sizeof(sum));
  for (size_t k = 0; k < neighbours.size(); ++k) {
    if (neighbours[k] < 0) continue;
    const float* x = input + neighbours[k] * c_in;
    const float* w = weights + static_cast<int64_t>(k) * c_in * kBlockChannels;
    for (int64_t c = 0; c < c_in; ++c, w += kBlockChannels) {
      Float4 weight[kBlockVectors];
      std::memcpy(weight, w, sizeof(weight));
      for (int v = 0; v < kBlockVectors; ++v) sum[v] += x[c] * weight[v];
    }
  }
  std::memcpy(total.data(), sum, sizeof(sum));
}

// Copies the weights into blocks of channels, zero padded.
void PackChannelBlocks(const CpuPlan& plan, int64_t num_offsets, const float* weights,
                       float* packed, const ExecutionContext& context) {
  const int64_t rows = num_offsets * plan.shape().c_in;
  const int64_t c_out = plan.shape().c_out;
  ParallelRanges(context, plan.channel_blocks(), 1, [&](int64_t block, int64_t) {
    const int64_t first = block * kBlockChannels;
    const int64_t channels = std::min(kBlockChannels, c_out - first);
    float* to = packed + block * rows * kBlockChannels;
    for (int64_t row = 0; row < rows; ++row, to += kBlockChannels) {
      std::copy_n(weights + row * c_out + first, channels, to);
      std::fill(to + channels, to + kBlockChannels, 0.0f);
    }
  });
}

// Output rows [begin, end): blocks of weights outermost, each used by all rows before the next, as
// a thread block does with its shared memory.
void ComputeRowsCached(const CpuPlan& plan, const KernelMap& map, const float* input,
                       const float* packed, int64_t begin, int64_t end, float* output) {
  const int64_t num_offsets = map.num_offsets();
  const int64_t c_in = plan.shape().c_in;
  const int64_t c_out = plan.shape().c_out;
  const int32_t* table = map.table().table.data();
  std::fill(output + begin * c_out, output + end * c_out, 0.0f);
  for (int64_t block = 0; block < plan.channel_blocks(); ++block) {
    const int64_t channels = std::min(kBlockChannels, c_out - block * kBlockChannels);
    for (int64_t k = 0; k < num_offsets; k += plan.block_offsets()) {
      const int64_t count = std::min(plan.block_offsets(), num_offsets - k);
      const float* weights = packed + (block * num_offsets + k) * c_in * kBlockChannels;
      for (int64_t q = begin; q < end; ++q) {
        float* to = output + q * c_out + block * kBlockChannels;
        ChannelBlock sum{};
        std::copy_n(to, channels, sum.data());
        AddBlock(c_in, {table + q * num_offsets + k, static_cast<size_t>(count)}, input, weights,
                 sum);
        std::copy_n(sum.data(), channels, to);
      }
    }
  }
}

// Output rows [begin, end), one channel after the other; `packed` is [c_out, K, c_in].
void ComputeRowsByChannel(const ConvShape& shape, const KernelMap& map, const float* input,
                          const float* packed, int64_t begin, int64_t end, float* output) {
  const int64_t num_offsets = map.num_offsets();
  const int32_t* table = map.table().table.data();
  for (int64_t j = 0; j < shape.c_out; ++j) {
    for (int64_t q = begin; q < end; ++q) {
      float sum = 0;
      for (int64_t k = 0; k < num_offsets; ++k) {
        const int32_t neighbour = table[q * num_offsets + k];
        if (neighbour < 0) continue;
        const float* x = input + neighbour * shape.c_in;
        const float* w = packed + (j * num_offsets + k) * shape.c_in;
        for (int64_t c = 0; c < shape.c_in; ++c) sum += x[c] * w[c];
      }
      output[q * shape.c_out + j] = sum;
    }
  }
}

class DirectCpu final : public Direct {
 public:
  using Direct::Direct;

 protected:
  Capability DoCapability(Pass, const ConvShape& shape) const override {
    return {.support = F32Only(kDirectName, shape)};
  }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(
      Pass, const PreparedMap& map, const ConvShape& shape,
      const ExecutionContext& context) const override {
    VOXCONV_RETURN_IF_ERROR(map.map().EnsureCounts(context));
    return std::make_unique<CpuPlan>(weights(), map.map(), shape);
  }

  absl::Status DoForward(const DataflowPlan& plan, const PreparedMap& prepared,
                         const ForwardArgs& args, const Workspace& workspace,
                         const ExecutionContext& context) const override {
    const auto& own = static_cast<const CpuPlan&>(plan);
    if (weights() == DirectWeights::kChannel) {
      ForwardByChannel(own, prepared.map(), args, workspace.Get<float>(own.packed_slot()), context);
    } else if (weights() == DirectWeights::kNaive) {
      ForwardNaive(own, prepared.map(), args, context);
    } else {
      ForwardCached(own, prepared.map(), args, workspace.Get<float>(own.packed_slot()), context);
    }
    return absl::OkStatus();
  }

 private:
  static void ForwardNaive(const CpuPlan& plan, const KernelMap& map, const ForwardArgs& args,
                           const ExecutionContext& context) {
    const int64_t num_offsets = map.num_offsets();
    const float* input = args.input.f32();
    const float* weights = args.weights.f32();
    float* output = args.output.f32();
    const int32_t* table = map.table().table.data();
    const StageScope stage(context, Stage::kFused);
    ParallelRanges(context, map.num_outputs(), kRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q) {
        ComputeRowNaive(plan.shape(), {table + q * num_offsets, static_cast<size_t>(num_offsets)},
                        input, weights, output + q * plan.shape().c_out);
      }
    });
  }

  static void ForwardByChannel(const CpuPlan& plan, const KernelMap& map, const ForwardArgs& args,
                               float* packed, const ExecutionContext& context) {
    const ConvShape& shape = plan.shape();
    const int64_t weight_rows = map.num_offsets() * shape.c_in;
    const float* input = args.input.f32();
    const float* weights = args.weights.f32();
    float* output = args.output.f32();
    {
      const StageScope stage(context, Stage::kConvert);
      ParallelRanges(context, shape.c_out, 1, [&](int64_t j, int64_t) {
        for (int64_t i = 0; i < weight_rows; ++i) {
          packed[j * weight_rows + i] = weights[i * shape.c_out + j];
        }
      });
    }
    const StageScope stage(context, Stage::kFused);
    ParallelRanges(context, map.num_outputs(), kRowsPerTask, [&](int64_t begin, int64_t end) {
      ComputeRowsByChannel(shape, map, input, packed, begin, end, output);
    });
  }

  static void ForwardCached(const CpuPlan& plan, const KernelMap& map, const ForwardArgs& args,
                            float* packed, const ExecutionContext& context) {
    {
      const StageScope stage(context, Stage::kConvert);
      PackChannelBlocks(plan, map.num_offsets(), args.weights.f32(), packed, context);
    }
    const float* input = args.input.f32();
    float* output = args.output.f32();
    const StageScope stage(context, Stage::kFused);
    ParallelRanges(context, map.num_outputs(), kRowsPerTask, [&](int64_t begin, int64_t end) {
      ComputeRowsCached(plan, map, input, packed, begin, end, output);
    });
  }
};

}  // namespace

absl::Status RegisterDirect(Registry& registry) {
  return registry.dataflows().Register(
      DescribeDirect(), BackendKind::kCpu,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Dataflow>> {
        return std::make_unique<DirectCpu>(std::move(options));
      });
}

}  // namespace voxconv
