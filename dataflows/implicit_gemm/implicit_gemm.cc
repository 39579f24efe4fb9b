// Output-stationary implicit GEMM: the dataflow of SpConv 2 and TorchSparse++.
#include <algorithm>
#include <memory>
#include <utility>

#include "core/backend_support.h"
#include "dataflows/implicit_gemm/implicit_gemm_cpu.h"
#include "dataflows/implicit_gemm/implicit_gemm_cuda.h"
#include "dataflows/implicit_gemm/register.h"

namespace voxconv {
namespace {

constexpr char kName[] = "implicit_gemm";
constexpr int64_t kCpuTile = 6;  // rows of the micro-kernel

OptionSchema Schema() {
  OptionSchema schema;
  schema.Enum(
      "mask_sort", {"none", "mask", "gray", "rarest"}, "mask",
      "order of the output rows: as given, by their offset mask, by its Gray rank, or by their "
      "two rarest offsets");
  schema.Int("splits", 1, 1, 32, "parts of the offset range, sorted each for itself; at most K");
  schema.Int(
      "tile", 0, 0, 256,
      "output rows that share one set of offsets; on CUDA 16, 64, 128 or 256 (the next one up); "
      "0: chosen by the backend, 6 on the CPU");
  schema.Int("tile_channels", 0, 0, 256,
             "output channels of a block on CUDA: 32, 64, 96, 128 or 256 (the next one up); 0: "
             "chosen by shape");
  schema.Enum("mma", {"auto", "warp"}, "auto",
              "tensor-core products on CUDA: of warpgroups where they are there and win, or always "
              "of warps");
  return schema;
}

MaskOrder MaskOrderOf(const Options& options) {
  const std::string& order = options.GetEnum("mask_sort");
  if (order == "mask") return MaskOrder::kMask;
  if (order == "gray") return MaskOrder::kGray;
  if (order == "rarest") return MaskOrder::kRarest;
  return MaskOrder::kNone;
}

class ImplicitGemm final : public Dataflow {
 public:
  explicit ImplicitGemm(Options options) : options_(std::move(options)) {}

  const Options& options() const override { return options_; }

  Support Supports(const ConvShape& shape, BackendKind backend) const override {
    return CpuAndCuda(kName, shape, backend);
  }

  bool deterministic(BackendKind) const override { return true; }
  bool FusesEpilogue(BackendKind backend) const override { return backend == BackendKind::kCuda; }

  LayoutRequest RequiredLayout(int num_offsets) const override {
    // A mask of so few offsets is as short a key as its two rarest ones, and needs no counting.
    constexpr int kShortMask = 9;
    MaskOrder order = MaskOrderOf(options_);
    if (order == MaskOrder::kRarest && num_offsets <= kShortMask) order = MaskOrder::kMask;
    return {.layout = MapLayout::kMaskSorted,
            .mask_order = order,
            .splits = static_cast<int>(
                std::min<int64_t>(options_.GetInt("splits"), std::max(num_offsets, 1)))};
  }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> Plan(
      const KernelMap& map, const ConvShape& shape,
      const ExecutionContext& context) const override {
    VOXCONV_CHECK(Supports(shape, context.backend->kind()).ok);
    VOXCONV_RETURN_IF_ERROR(CheckChannels(kName, shape));
    const int64_t tile = options_.GetInt("tile");
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) {
        return PlanImplicitGemmCuda(tile, options_.GetInt("tile_channels"),
                                    options_.GetEnum("mma") == "auto", map, shape, context);
      }
    }
    return PlanImplicitGemmCpu(tile == 0 ? kCpuTile : tile, map, shape);
  }

  absl::Status Forward(const DataflowPlan& plan, const KernelMap& map, const ForwardArgs& args,
                       const Workspace& workspace, const ExecutionContext& context) const override {
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) {
        return ForwardImplicitGemmCuda(plan, map, args, workspace, context);
      }
    }
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
       .extra_variants = {"splits=3", "mask_sort=gray,splits=2,tile=64", "tile=1",
                          "tile=128,tile_channels=32", "tile=128,tile_channels=128",
                          "tile=128,tile_channels=256", "tile=256,tile_channels=64"}},
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Dataflow>> {
        return std::make_unique<ImplicitGemm>(std::move(options));
      });
}

}  // namespace voxconv
