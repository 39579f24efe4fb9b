// The plugin: options, what it supports, and planning. Execution is per backend.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/backend_support.h"
#include "dataflows/hash2col/forward_cpu.h"
#include "dataflows/hash2col/forward_cuda.h"
#include "dataflows/hash2col/plan.h"
#include "dataflows/hash2col/register.h"

namespace voxconv {
namespace {

constexpr char kName[] = "hash2col";
// Blocks that stay in a CPU's caches are faster there. On an H200 products in blocks of 5,000 to
// 10,000 rows took 1.3 to 1.5 times as long as in one.
constexpr int64_t kCpuMib = 64;
constexpr int64_t kCudaMib = 1024;

// Columns are assembled for every offset, present or not: N_out * K rows of C_in are multiplied.
// Of a map that has not been counted, the pairs and the features read for them are left out.
Counters CountWork(const Hash2colPlan& plan, const KernelMap& map, BackendKind backend) {
  const int64_t element = SizeOf(plan.shape().dtype);
  const int64_t rows = map.num_outputs();
  const int64_t blocks = (rows + plan.block_rows() - 1) / plan.block_rows();
  const int64_t column_bytes = rows * plan.column_size() * element;
  const int64_t table_bytes = rows * map.num_offsets() * static_cast<int64_t>(sizeof(int32_t));
  Counters work;
  work.true_pairs = map.counts_known() ? map.num_pairs() : 0;
  work.padded_pairs = rows * map.num_offsets();
  if (backend == BackendKind::kCpu) work.launches = blocks;  // on CUDA each launch counts itself
  work.bytes_read = work.true_pairs * plan.shape().c_in * element + table_bytes + column_bytes +
                    blocks * plan.column_size() * plan.shape().c_out * element;
  work.bytes_written = column_bytes + rows * plan.shape().c_out * element;
  return work;
}

class Hash2col final : public Dataflow {
 public:
  explicit Hash2col(Options options) : options_(std::move(options)) {}

  const Options& options() const override { return options_; }
  bool deterministic(BackendKind) const override { return true; }

  Support Supports(const ConvShape& shape, BackendKind backend) const override {
    return CpuAndCuda(kName, shape, backend);
  }

  LayoutRequest RequiredLayout(int) const override {
    return {.layout = MapLayout::kNeighbourTable};
  }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> Plan(
      const KernelMap& map, const ConvShape& shape,
      const ExecutionContext& context) const override {
    VOXCONV_CHECK(map.layout().layout == MapLayout::kNeighbourTable);
    VOXCONV_RETURN_IF_ERROR(CheckChannels(kName, shape));
    const int64_t given = options_.GetInt("workspace_mib");
    const bool is_cpu = context.backend->kind() == BackendKind::kCpu;
    const int64_t limit = (given > 0 ? given : is_cpu ? kCpuMib : kCudaMib) << 20;
    // A map without offsets has columns of no size; its outputs are zero.
    const int64_t row_bytes =
        std::max<int64_t>(1, map.num_offsets() * shape.c_in * SizeOf(shape.dtype));
    if (row_bytes > limit) {
      return absl::ResourceExhaustedError(absl::StrCat(
          kName, ": workspace_mib=", limit >> 20, ": one column of ", map.num_offsets(),
          " offsets x ", shape.c_in, " channels takes ", row_bytes, " bytes; at least ",
          (row_bytes + (int64_t{1} << 20) - 1) >> 20, " is allowed"));
    }
    const int64_t block_rows = std::clamp<int64_t>(map.num_outputs(), 1, limit / row_bytes);
    return std::make_unique<Hash2colPlan>(shape, map.num_offsets(), block_rows);
  }

  absl::Status Forward(const DataflowPlan& plan, const KernelMap& map, const ForwardArgs& args,
                       const Workspace& workspace, const ExecutionContext& context) const override {
    const auto& own = static_cast<const Hash2colPlan&>(plan);
    VOXCONV_CHECK(args.input.rows == map.num_inputs() && args.output.rows == map.num_outputs());
    VOXCONV_CHECK(args.input.channels == own.shape().c_in &&
                  args.output.channels == own.shape().c_out);
    if (Counters* counters = context.counters()) {
      counters->Add(CountWork(own, map, context.backend->kind()));
    }
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) {
        return Hash2colCuda(own, map, args, workspace.Get<char>(own.columns_slot()), context);
      }
    }
    Hash2colCpu(own, map, args, workspace.Get<float>(own.columns_slot()), context);
    return absl::OkStatus();
  }

 private:
  const Options options_;
};

}  // namespace

absl::Status RegisterHash2col(Registry& registry) {
  PluginDescription description;
  description.name = kName;
  description.summary = "assembles every output's receptive field as a column; one large matmul";
  description.source = "H-CNN, Algorithm 1 and Equation 3";
  description.options.Int("workspace_mib", 0, 0, 1 << 20,
                          "limit of the columns in MiB; outputs are done in blocks that fit; 0: 64 "
                          "on the CPU, 1024 on CUDA");
  description.extra_variants = {"workspace_mib=1"};
  return registry.dataflows().Register(
      std::move(description),
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Dataflow>> {
        return std::make_unique<Hash2col>(std::move(options));
      });
}

}  // namespace voxconv
