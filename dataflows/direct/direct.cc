// Direct convolution over an offset table (OFT): Luo and Lai's compute kernel, Section III-C.
#include <memory>
#include <utility>

#include "core/backend_support.h"
#include "dataflows/direct/direct_cpu.h"
#include "dataflows/direct/direct_cuda.h"
#include "dataflows/direct/register.h"

namespace voxconv {
namespace {

constexpr char kName[] = "direct";

OptionSchema Schema() {
  OptionSchema schema;
  schema.Enum("weights", {"naive", "cached"}, "cached",
              "read the weights from their array, or from blocks in shared memory or cache");
  return schema;
}

class Direct final : public Dataflow {
 public:
  explicit Direct(Options options) : options_(std::move(options)) {}

  const Options& options() const override { return options_; }

  Support Supports(const ConvShape& shape, BackendKind backend) const override {
    return CpuAndCuda(kName, shape, backend);
  }

  bool deterministic(BackendKind) const override { return true; }
  LayoutRequest RequiredLayout(int) const override {
    return {.layout = MapLayout::kNeighbourTable};
  }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> Plan(
      const KernelMap& map, const ConvShape& shape,
      const ExecutionContext& context) const override {
    VOXCONV_CHECK(Supports(shape, context.backend->kind()).ok);
    VOXCONV_RETURN_IF_ERROR(CheckChannels(kName, shape));
    const bool cached = options_.GetEnum("weights") == "cached";
    const DirectWeights weights = cached ? DirectWeights::kCached : DirectWeights::kNaive;
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) return PlanDirectCuda(weights, map, shape);
    }
    return PlanDirectCpu(weights, map, shape);
  }

  absl::Status Forward(const DataflowPlan& plan, const KernelMap& map, const ForwardArgs& args,
                       const Workspace& workspace, const ExecutionContext& context) const override {
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) {
        return ForwardDirectCuda(plan, map, args, workspace, context);
      }
    }
    return ForwardDirectCpu(plan, map, args, workspace, context);
  }

 private:
  Options options_;
};

}  // namespace

absl::Status RegisterDirect(Registry& registry) {
  return registry.dataflows().Register(
      {.name = kName,
       .summary = "one dot product an output channel over the row of an offset table",
       .source = "Luo and Lai, Optimization of Sparse Convolution for 3D-Point Cloud on GPUs",
       .options = Schema()},
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Dataflow>> {
        return std::make_unique<Direct>(std::move(options));
      });
}

}  // namespace voxconv
