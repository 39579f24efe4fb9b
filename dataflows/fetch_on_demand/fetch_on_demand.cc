// Fetch-on-demand: MinkowskiEngine's dataflow for small channel counts, which gathers, multiplies
// and scatters in one kernel; fused over kernel offsets as PCEngine (Section 5) does.
#include <memory>
#include <utility>
#include <vector>

#include "core/backend_support.h"
#include "dataflows/fetch_on_demand/fetch_on_demand_cpu.h"
#include "dataflows/fetch_on_demand/fetch_on_demand_cuda.h"
#include "dataflows/fetch_on_demand/register.h"
#include "dataflows/fetch_on_demand/schedule.h"

namespace voxconv {
namespace {

constexpr char kName[] = "fetch_on_demand";

OptionSchema Schema() {
  OptionSchema schema;
  schema.Enum("fusion", {"separate", "batched", "segmented"}, "segmented",
              "offsets a launch: one, similar ones padded to the largest, or all without padding");
  schema.Int("tile", 512, 16, 1 << 20, "CPU: output rows that one task computes at a time");
  return schema;
}

FgmsFusion FusionOf(const Options& options) {
  const std::string& fusion = options.GetEnum("fusion");
  if (fusion == "separate") return FgmsFusion::kSeparate;
  if (fusion == "batched") return FgmsFusion::kBatched;
  return FgmsFusion::kSegmented;
}

class FetchOnDemand final : public Dataflow {
 public:
  explicit FetchOnDemand(Options options) : options_(std::move(options)) {}

  const Options& options() const override { return options_; }

  Support Supports(const ConvShape& shape, BackendKind backend) const override {
    return CpuAndCuda(kName, shape, backend);
  }

  // On CUDA the offsets of one launch add to the same rows in any order.
  bool deterministic(BackendKind backend) const override {
    return backend == BackendKind::kCpu || FusionOf(options_) == FgmsFusion::kSeparate;
  }
  LayoutRequest RequiredLayout(int) const override { return {}; }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> Plan(
      const KernelMap& map, const ConvShape& shape,
      const ExecutionContext& context) const override {
    VOXCONV_CHECK(Supports(shape, context.backend->kind()).ok);
    VOXCONV_RETURN_IF_ERROR(CheckChannels(kName, shape));
    VOXCONV_RETURN_IF_ERROR(map.EnsureCounts(context));
    std::vector<FgmsLaunch> launches = ScheduleFgms(FusionOf(options_), map.offset_ptr());
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) {
        return PlanFetchOnDemandCuda(std::move(launches), map, shape, context);
      }
    }
    return PlanFetchOnDemandCpu(std::move(launches), options_.GetInt("tile"), map, shape);
  }

  absl::Status Forward(const DataflowPlan& plan, const KernelMap& map, const ForwardArgs& args,
                       const Workspace& workspace, const ExecutionContext& context) const override {
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) {
        return ForwardFetchOnDemandCuda(plan, map, args, workspace, context);
      }
    }
    return ForwardFetchOnDemandCpu(plan, map, args, workspace, context);
  }

 private:
  Options options_;
};

}  // namespace

absl::Status RegisterFetchOnDemand(Registry& registry) {
  return registry.dataflows().Register(
      {.name = kName,
       .summary = "gather, matmul and scatter fused, straight from the pair list",
       .source = "MinkowskiEngine; fusion of the offsets: PCEngine (MLSys 2023), Section 5",
       .options = Schema(),
       .extra_variants = {"tile=16", "fusion=batched,tile=16"}},
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Dataflow>> {
        return std::make_unique<FetchOnDemand>(std::move(options));
      });
}

}  // namespace voxconv
