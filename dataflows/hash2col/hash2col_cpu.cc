// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/dataflows/hash2col/hash2col.h"
#include "voxconv/dataflows/hash2col/register.h"

namespace voxconv {
namespace {

// Blocks that stay in the caches are faster.
constexpr int64_t kDefaultMib = 64;
// Rows that a task computes.
constexpr int64_t kRowsPerTask = 128;
// Parts of columns that a task copies.
constexpr int64_t kCellsPerTask = 4096;

// The output `row`, whose neighbours these are, with weights that are not all finite: products of
// the neighbours alone.
void SumNeighbours(const int32_t* neighbours, int num_offsets, const ForwardArgs& args,
                   int64_t row) {
  const int64_t c_in = args.input.channels, c_out = args.output.channels;
  float* output = args.output.f32() + row * c_out;
  std::fill_n(output, c_out, 0.0f);
  for (int k = 0; k < num_offsets; ++k) {
    const int64_t p = neighbours[k];
    if (p < 0) continue;
    SgemmSerial(1, c_out, c_in, args.input.f32() + p * c_in, args.weights.f32() + k * c_in * c_out,
                ProductMode::kAccumulate, output);
  }
}

// Adds to the gradient of offset k's weights what outputs [first, first + rows) add, where output
// gradients are not all finite: products of the offset's pairs alone.
void SumPairs(const int32_t* neighbours, int64_t num_offsets, const WeightGradArgs& args, int64_t k,
              int64_t first, int64_t rows) {
  const int64_t c_in = args.input.channels, c_out = args.output_grad.channels;
  float* gradient = args.weights_grad.f32() + k * c_in * c_out;
  if (first == 0) std::fill_n(gradient, c_in * c_out, 0.0f);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t p = neighbours[i * num_offsets + k];
    if (p < 0) continue;
    SgemmTransposedSerial(c_in, c_out, 1, args.input.f32() + p * c_in,
                          args.output_grad.f32() + (first + i) * c_out, ProductMode::kAccumulate,
                          gradient);
  }
}

// Of equal maxima the lowest offset's is taken, and a NaN is taken and stays, as everywhere.
void MaxOfColumn(const ColumnPool& pool, int64_t row) {
  const int64_t channels = pool.pooled.channels;
  const int32_t* neighbours = pool.neighbours + row * pool.num_offsets;
  const float* part = static_cast<const float*>(pool.columns) + row * pool.num_offsets * channels;
  float* to = pool.pooled.f32() + row * channels;
  int32_t* switches = pool.switches == nullptr ? nullptr : pool.switches + row * channels;
  std::fill_n(to, channels, 0.0f);
  if (switches != nullptr) std::fill_n(switches, channels, -1);
  bool first = true;
  for (int k = 0; k < pool.num_offsets; ++k, part += channels) {
    if (neighbours[k] < 0) continue;
    for (int64_t c = 0; c < channels; ++c) {
      if (!first && !(part[c] > to[c]) && part[c] == part[c]) continue;
      to[c] = part[c];
      if (switches != nullptr) switches[c] = neighbours[k];
    }
    first = false;
  }
}

int CountPresent(const int32_t* neighbours, int num_offsets) {
  return num_offsets - static_cast<int>(std::count(neighbours, neighbours + num_offsets, -1));
}

// What the sum of a window of `present` inputs is divided by.
float DivisorOf(PoolMode mode, int num_offsets, int present) {
  if (mode == PoolMode::kAverage) return static_cast<float>(num_offsets);
  return mode == PoolMode::kAveragePresent ? static_cast<float>(std::max(present, 1)) : 1.0f;
}

void SumOfColumn(const ColumnPool& pool, int64_t row) {
  const int64_t channels = pool.pooled.channels;
  const int32_t* neighbours = pool.neighbours + row * pool.num_offsets;
  const float* part = static_cast<const float*>(pool.columns) + row * pool.num_offsets * channels;
  float* to = pool.pooled.f32() + row * channels;
  std::fill_n(to, channels, 0.0f);
  for (int k = 0; k < pool.num_offsets; ++k, part += channels) {
    if (neighbours[k] < 0) continue;
    for (int64_t c = 0; c < channels; ++c) to[c] += part[c];
  }
  const float divisor =
      DivisorOf(pool.mode, pool.num_offsets, CountPresent(neighbours, pool.num_offsets));
  for (int64_t c = 0; c < channels; ++c) to[c] /= divisor;
}

void SpreadOverColumn(const ColumnSpread& spread, int64_t row) {
  const int64_t channels = spread.values.channels;
  const int32_t* neighbours = spread.neighbours + row * spread.num_offsets;
  const float* from = spread.values.f32() + row * channels;
  float* part = spread.columns + row * spread.num_offsets * channels;
  const float divisor =
      DivisorOf(spread.mode, spread.num_offsets, CountPresent(neighbours, spread.num_offsets));
  for (int k = 0; k < spread.num_offsets; ++k, part += channels) {
    const int32_t p = neighbours[k];
    if (p < 0) {
      std::fill_n(part, channels, 0.0f);
    } else if (spread.mode != PoolMode::kMax) {
      for (int64_t c = 0; c < channels; ++c) part[c] = from[c] / divisor;
    } else {
      const int32_t* switches = spread.switches + row * channels;
      for (int64_t c = 0; c < channels; ++c) part[c] = switches[c] == p ? from[c] : 0.0f;
    }
  }
}

class Hash2colCpu final : public Hash2col {
 public:
  explicit Hash2colCpu(Options options) : Hash2col(std::move(options), kDefaultMib) {}

 protected:
  Capability DoCapability(Pass, const ConvShape& shape) const override {
    return {.support = F32Only(kHash2colName, shape)};
  }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> DoPlan(
      Pass pass, const PreparedMap& map, const ConvShape& shape,
      const ExecutionContext& context) const override {
    // To count the pairs of a lookup, all neighbours would have to be found once more.
    if (map.map().form() != MapForm::kLookup) {
      VOXCONV_RETURN_IF_ERROR(map.map().EnsureCounts(context));
    }
    VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<Hash2colPlan> plan,
                             PlanBlocks(pass, map.map(), shape));
    plan->CountLaunches();
    return plan;
  }

  // hash2col: padding times a weight that is not finite is NaN, which must not reach a sum. The
  // products that col2hash makes of it are not read.
  absl::Status DoForward(const DataflowPlan& base_plan, const PreparedMap& prepared,
                         const ForwardArgs& args, const Workspace& workspace,
                         const ExecutionContext& context) const override {
    const auto& plan = static_cast<const Hash2colPlan&>(base_plan);
    const KernelMap& map = prepared.map();
    if (plan.lowering() == Lowering::kCol2hash ||
        AllFinite(context, args.weights.f32(), args.weights.rows * args.weights.channels)) {
      return Hash2col::DoForward(plan, prepared, args, workspace, context);
    }
    return ForNeighbours(
        plan, map, workspace, context,
        [&](int64_t first, int64_t rows, const int32_t* neighbours) -> absl::Status {
          const StageScope stage(context, Stage::kGemm);
          ParallelRanges(context, rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              SumNeighbours(neighbours + i * map.num_offsets(), map.num_offsets(), args, first + i);
            }
          });
          return absl::OkStatus();
        });
  }

  // The same of padding times an output gradient.
  absl::Status DoWeightGrad(const DataflowPlan& base_plan, const PreparedMap& prepared,
                            const WeightGradArgs& args, const Workspace& workspace,
                            const ExecutionContext& context) const override {
    const auto& plan = static_cast<const Hash2colPlan&>(base_plan);
    const KernelMap& map = prepared.map();
    const ConstTensorView& dy = args.output_grad;
    if (AllFinite(context, dy.f32(), dy.rows * dy.channels)) {
      return Hash2col::DoWeightGrad(plan, prepared, args, workspace, context);
    }
    return ForNeighbours(
        plan, map, workspace, context,
        [&](int64_t first, int64_t rows, const int32_t* neighbours) -> absl::Status {
          const StageScope stage(context, Stage::kGemm);
          ParallelRanges(context, map.num_offsets(), 1, [&](int64_t k, int64_t) {
            SumPairs(neighbours, map.num_offsets(), args, k, first, rows);
          });
          return absl::OkStatus();
        });
  }

  absl::Status FillColumns(const int32_t* neighbours, int64_t cells, const ConstTensorView& input,
                           void* columns, const ExecutionContext& context) const override {
    const int64_t channels = input.channels;
    const int64_t bytes = channels * static_cast<int64_t>(sizeof(float));
    ParallelRanges(context, cells, kCellsPerTask, [&](int64_t begin, int64_t end) {
      float* part = static_cast<float*>(columns) + begin * channels;
      for (int64_t i = begin; i < end; ++i, part += channels) {
        if (neighbours[i] >= 0) {
          std::memcpy(part, input.f32() + neighbours[i] * channels, bytes);
        } else {
          std::memset(part, 0, bytes);
        }
      }
    });
    return absl::OkStatus();
  }

  absl::Status Multiply(const Product& product, const ExecutionContext& context) const override {
    const auto mode = product.accumulate ? ProductMode::kAccumulate : ProductMode::kOverwrite;
    const auto multiply = product.transpose_a ? SgemmTransposed : Sgemm;
    multiply(context, product.m, product.n, product.k, static_cast<const float*>(product.a),
             static_cast<const float*>(product.b), mode, static_cast<float*>(product.c));
    return absl::OkStatus();
  }

  absl::Status UnrollWeights(const ConstTensorView& weights, int num_offsets, bool transposed,
                             void* unrolled, const ExecutionContext& context) const override {
    if (num_offsets == 0) return absl::OkStatus();
    const int64_t c_in = weights.rows / num_offsets, c_out = weights.channels;
    const int64_t channels = transposed ? c_in : c_out;
    const int64_t row_step = transposed ? 1 : c_out, channel_step = transposed ? c_out : 1;
    ParallelRanges(context, transposed ? c_out : c_in, 1, [&](int64_t i, int64_t) {
      float* to = static_cast<float*>(unrolled) + i * num_offsets * channels;
      for (int k = 0; k < num_offsets; ++k) {
        const float* from = weights.f32() + k * c_in * c_out + i * row_step;
        for (int64_t c = 0; c < channels; ++c) *to++ = from[c * channel_step];
      }
    });
    return absl::OkStatus();
  }

  absl::Status SumColumns(const ColumnSum& sum, const ExecutionContext& context) const override {
    const int64_t channels = sum.sums.channels;
    const int last = sum.num_offsets - 1;
    VOXCONV_CHECK(sum.so_far == nullptr || sum.so_far == sum.sums.f32());
    ParallelRanges(context, sum.sums.rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        float* to = sum.sums.f32() + row * channels;
        if (sum.so_far == nullptr) std::fill_n(to, channels, 0.0f);
        const int32_t* neighbours = sum.neighbours + row * sum.num_offsets;
        for (int k = 0; k <= last; ++k) {
          const int64_t column = neighbours[sum.reversed ? last - k : k] - sum.first;
          if (column < 0 || column >= sum.count) continue;
          const float* part = sum.columns + (column * sum.num_offsets + k) * channels;
          for (int64_t c = 0; c < channels; ++c) to[c] += part[c];
        }
      }
    });
    return absl::OkStatus();
  }

  absl::Status PoolColumns(const ColumnPool& pool, const ExecutionContext& context) const override {
    ParallelRanges(context, pool.pooled.rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        pool.mode == PoolMode::kMax ? MaxOfColumn(pool, row) : SumOfColumn(pool, row);
      }
    });
    return absl::OkStatus();
  }

  absl::Status SpreadColumns(const ColumnSpread& spread,
                             const ExecutionContext& context) const override {
    ParallelRanges(context, spread.values.rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) SpreadOverColumn(spread, row);
    });
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status RegisterHash2col(Registry& registry) {
  return registry.dataflows().Register(
      DescribeHash2col(), BackendKind::kCpu,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Dataflow>> {
        return std::make_unique<Hash2colCpu>(std::move(options));
      });
}

}  // namespace voxconv
