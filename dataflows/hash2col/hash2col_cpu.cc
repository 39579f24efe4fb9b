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
// Output rows whose columns a task assembles.
constexpr int64_t kRowsPerTask = 128;

// H-CNN Algorithm 1 for outputs [begin, end): row q of `columns` stacks the features of q's
// receptive field, zeros where it is empty. `neighbours` is the map's table [N_out, K].
void AssembleColumns(const int32_t* neighbours, int num_offsets, const float* features,
                     int64_t channels, int64_t begin, int64_t end, float* columns) {
  const int64_t bytes = channels * static_cast<int64_t>(sizeof(float));
  for (int64_t i = begin * num_offsets; i < end * num_offsets; ++i, columns += channels) {
    if (neighbours[i] >= 0) {
      std::memcpy(columns, features + neighbours[i] * channels, bytes);
    } else {
      std::memset(columns, 0, bytes);
    }
  }
}

// Outputs [begin, end) with weights that are not all finite: products of the neighbours alone.
void SumNeighbours(const int32_t* neighbours, int num_offsets, const ForwardArgs& args,
                   int64_t c_in, int64_t c_out, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    float* output = args.output.f32() + row * c_out;
    std::fill_n(output, c_out, 0.0f);
    for (int k = 0; k < num_offsets; ++k) {
      const int64_t p = neighbours[row * num_offsets + k];
      if (p < 0) continue;
      SgemmSerial(1, c_out, c_in, args.input.f32() + p * c_in,
                  args.weights.f32() + k * c_in * c_out, ProductMode::kAccumulate, output);
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
      Pass, const PreparedMap& map, const ConvShape& shape,
      const ExecutionContext& context) const override {
    VOXCONV_RETURN_IF_ERROR(map.map().EnsureCounts(context));
    VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<Hash2colPlan> plan, PlanBlocks(map.map(), shape));
    plan->CountLaunches();
    return plan;
  }

  absl::Status DoForward(const DataflowPlan& base_plan, const PreparedMap& prepared,
                         const ForwardArgs& args, const Workspace& workspace,
                         const ExecutionContext& context) const override {
    const auto& plan = static_cast<const Hash2colPlan&>(base_plan);
    const KernelMap& map = prepared.map();
    const int32_t* table = map.table().table.data();
    const int num_offsets = map.num_offsets();
    const int64_t c_in = plan.shape().c_in, c_out = plan.shape().c_out;
    const int64_t column_size = plan.column_size();
    if (!AllFinite(context, args.weights.f32(), num_offsets * c_in * c_out)) {
      const StageScope stage(context, Stage::kGemm);
      ParallelRanges(context, map.num_outputs(), kRowsPerTask, [&](int64_t begin, int64_t end) {
        SumNeighbours(table, num_offsets, args, c_in, c_out, begin, end);
      });
      return absl::OkStatus();
    }
    float* columns = workspace.Get<float>(plan.columns_slot());
    for (int64_t first = 0; first < map.num_outputs(); first += plan.block_rows()) {
      const int64_t rows = std::min(plan.block_rows(), map.num_outputs() - first);
      {
        const StageScope stage(context, Stage::kGather);
        ParallelRanges(context, rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
          AssembleColumns(table, num_offsets, args.input.f32(), c_in, first + begin, first + end,
                          columns + begin * column_size);
        });
      }
      const StageScope stage(context, Stage::kGemm);  // Equation 3
      Sgemm(context, rows, c_out, column_size, columns, args.weights.f32(), ProductMode::kOverwrite,
            args.output.f32() + first * c_out);
    }
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
