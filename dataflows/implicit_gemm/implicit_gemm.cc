// Output-stationary implicit GEMM: the dataflow of SpConv 2 and TorchSparse++.
#include <algorithm>
#include <memory>
#include <utility>

#include "core/backend_support.h"
#include "dataflows/implicit_gemm/implicit_gemm_cpu.h"
#include "dataflows/implicit_gemm/register.h"

namespace voxconv {
namespace {

constexpr char kName[] = "implicit_gemm";

OptionSchema Schema() {
  OptionSchema schema;
  schema.Enum("mask_sort", {"none", "mask", "gray"}, "mask",
              "order of the output rows: as given, by their offset mask, or by its Gray rank");
  schema.Int("splits", 1, 1, 32, "parts of the offset range, sorted each for itself; at most K");
  schema.Int("tile", 6, 1, 256, "output rows that share one set of offsets");
  return schema;
}

MaskOrder MaskOrderOf(const Options& options) {
  const std::string& order = options.GetEnum("mask_sort");
  if (order == "mask") return MaskOrder::kMask;
  if (order == "gray") return MaskOrder::kGray;
  return MaskOrder::kNone;
}

class ImplicitGemm final : public Dataflow {
 public:
  explicit ImplicitGemm(Options options) : options_(std::move(options)) {}

  const Options& options() const override { return options_; }

  Support Supports(const ConvShape& shape, BackendKind backend) const override {
    return CpuF32Only(kName, shape, backend);
  }

  bool deterministic(BackendKind) const override { return true; }

  LayoutRequest RequiredLayout(int num_offsets) const override {
    return {.layout = MapLayout::kMaskSorted,
            .mask_order = MaskOrderOf(options_),
            .splits = static_cast<int>(
                std::min<int64_t>(options_.GetInt("splits"), std::max(num_offsets, 1)))};
  }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> Plan(
      const KernelMap& map, const ConvShape& shape,
      const ExecutionContext& context) const override {
    VOXCONV_CHECK(Supports(shape, context.backend->kind()).ok);
    VOXCONV_RETURN_IF_ERROR(CheckChannels(kName, shape));
    return PlanImplicitGemmCpu(options_.GetInt("tile"), map, shape);
  }

  absl::Status Forward(const DataflowPlan& plan, const KernelMap& map, const ForwardArgs& args,
                       const Workspace& workspace, const ExecutionContext& context) const override {
    return ForwardImplicitGemmCpu(plan, map, args, workspace, context);
  }

 private:
  Options options_;
};

}  // namespace

absl::Status RegisterImplicitGemm(Registry& registry) {
  return registry.dataflows().Register(
      {.name = kName,
       .summary = "output-stationary, rows sorted by the kernel offsets they have",
       .source = "SpConv 2; TorchSparse++ (MICRO 2023)",
       .options = Schema(),
       .extra_variants = {"splits=3", "mask_sort=gray,splits=2,tile=64", "tile=1"}},
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Dataflow>> {
        return std::make_unique<ImplicitGemm>(std::move(options));
      });
}

}  // namespace voxconv
