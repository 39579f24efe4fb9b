// The plugin: options, what it supports, and planning. Execution is per backend.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/backend_support.h"
#include "dataflows/gather_gemm_scatter/forward_cpu.h"
#include "dataflows/gather_gemm_scatter/forward_cuda.h"
#include "dataflows/gather_gemm_scatter/plan.h"
#include "dataflows/gather_gemm_scatter/register.h"

namespace voxconv {
namespace {

constexpr char kName[] = "gather_gemm_scatter";
constexpr int64_t kMaxOffsets = 1 << 20;

OptionSchema Schema() {
  OptionSchema schema;
  schema
      .Enum("grouping", {"separate", "symmetric", "fixed", "adaptive", "sorted_adaptive"},
            "adaptive", "which kernel offsets are multiplied as one batch")
      .Float("epsilon", 0.3, 0, 1, "adaptive: share of a group's largest map that may be padding")
      .Int("threshold", 8192, 0, int64_t{1} << 40,
           "adaptive: pairs from which a group is multiplied offset by offset, not as a batch")
      .Enum("map", {"dense", "coded_csr"}, "dense",
            "layout of the positions: a table with holes, or PCEngine's coded CSR")
      .Enum("order", {"weight", "locality"}, "locality",
            "gather and scatter by kernel offset, or by input and by output row")
      .Int("tile", 0, 0, 1 << 20,
           "channels moved at a time by gather and scatter: on the CPU for one reading of the map "
           "(0: all), on CUDA by one thread (0: chosen by size)")
      .Int("scatter_tile", 0, 0, 1 << 20, "the same of scatter alone; 0: tile")
      .Int("buffer_mib", 512, 1, 1 << 20,
           "limit of gather and scatter buffers in MiB; what exceeds it is done in passes")
      .Int("vector_bytes", 16, 2, 16,
           "CUDA: widest access of gather and scatter, 2, 4, 8 or 16 bytes; narrower where "
           "channels and tile ask for it")
      .Int("offsets_per_launch", 0, 0, kMaxOffsets,
           "CUDA: kernel offsets moved by one launch; 0: all; scatter in weight order: 1")
      .Int("streams", 1, 1, 4, "CUDA: streams that the matmuls are spread over");
  return schema;
}

Grouping ParseGrouping(const std::string& text) {
  if (text == "separate") return Grouping::kSeparate;
  if (text == "symmetric") return Grouping::kSymmetric;
  if (text == "fixed") return Grouping::kFixed;
  if (text == "adaptive") return Grouping::kAdaptive;
  VOXCONV_CHECK(text == "sorted_adaptive");
  return Grouping::kSortedAdaptive;
}

class GatherGemmScatter final : public Dataflow {
 public:
  explicit GatherGemmScatter(Options options)
      : options_(std::move(options)),
        grouping_{ParseGrouping(options_.GetEnum("grouping")), options_.GetFloat("epsilon"),
                  options_.GetInt("threshold")},
        move_{options_.GetEnum("map") == "dense" ? MapLayout::kDenseTables : MapLayout::kCodedCsr,
              options_.GetEnum("order") == "weight" ? MoveOrder::kWeight : MoveOrder::kLocality,
              options_.GetInt("tile"),
              options_.GetInt(options_.GetInt("scatter_tile") > 0 ? "scatter_tile" : "tile")},
        cuda_{static_cast<int>(options_.GetInt("vector_bytes")),
              static_cast<int>(options_.GetInt("offsets_per_launch")),
              static_cast<int>(options_.GetInt("streams"))} {}

  const Options& options() const override { return options_; }
  bool deterministic(BackendKind) const override { return true; }
  // The scatter buffer has the dtype of the features, which on the CPU is f32.
  bool RoundsPartialSums(BackendKind backend) const override {
    return backend == BackendKind::kCuda;
  }

  Support Supports(const ConvShape& shape, BackendKind backend) const override {
    if (backend == BackendKind::kCpu && cuda_ != CudaMoveRule()) {
      return Support::No(absl::StrCat(
          kName, " on the CPU has no vector_bytes, offsets_per_launch and streams to choose"));
    }
    return CpuAndCuda(kName, shape, backend);
  }

  LayoutRequest RequiredLayout(int) const override { return {.layout = move_.map}; }

  absl::StatusOr<std::unique_ptr<DataflowPlan>> Plan(
      const KernelMap& map, const ConvShape& shape,
      const ExecutionContext& context) const override {
    VOXCONV_CHECK(map.layout().layout == move_.map);
    VOXCONV_RETURN_IF_ERROR(CheckChannels(kName, shape));
    std::vector<int64_t> map_sizes(map.num_offsets());
    for (int k = 0; k < map.num_offsets(); ++k) map_sizes[k] = map.num_pairs(k);
    const std::vector<OffsetGroup> groups =
        GroupOffsets(map_sizes, map.symmetric(), map.identity_offset(), grouping_);
    const int64_t row_bytes = (shape.c_in + shape.c_out) * SizeOf(shape.dtype);
    const int64_t buffer_mib = options_.GetInt("buffer_mib");
    absl::StatusOr<Schedule> schedule = MakeSchedule(map.offset_ptr(), map.identity_offset(),
                                                     groups, (buffer_mib << 20) / row_bytes);
    if (!schedule.ok()) {
      return absl::Status(
          schedule.status().code(),
          absl::StrCat(kName, ": buffer_mib=", buffer_mib, ": ", schedule.status().message()));
    }
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) {
        return MakeGatherGemmScatterCudaPlan(*std::move(schedule), map, shape, move_, cuda_,
                                             context);
      }
    }
    return std::make_unique<GatherGemmScatterPlan>(*std::move(schedule), map, shape, move_);
  }

  absl::Status Forward(const DataflowPlan& plan, const KernelMap& map, const ForwardArgs& args,
                       const Workspace& workspace, const ExecutionContext& context) const override {
    const auto& own = static_cast<const GatherGemmScatterPlan&>(plan);
    VOXCONV_CHECK(args.input.rows == map.num_inputs() && args.output.rows == map.num_outputs());
    VOXCONV_CHECK(args.input.channels == own.shape().c_in &&
                  args.output.channels == own.shape().c_out);
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) {
        if (Counters* counters = context.counters()) {
          Counters work = own.work();
          work.launches = 0;  // each counts itself
          counters->Add(work);
        }
        return GatherGemmScatterCuda(own, map, args, workspace, context);
      }
    }
    GatherGemmScatterCpu(own, map, args, workspace.Get<float>(own.gather_slot()),
                         workspace.Get<float>(own.scatter_slot()), context);
    if (Counters* counters = context.counters()) counters->Add(own.work());
    return absl::OkStatus();
  }

 private:
  const Options options_;
  const GroupingRule grouping_;
  const MoveRule move_;
  const CudaMoveRule cuda_;
};

}  // namespace

absl::Status RegisterGatherGemmScatter(Registry& registry) {
  PluginDescription description;
  description.name = kName;
  description.summary = "gathers the pairs of all offsets, multiplies in groups, scatters the sums";
  description.source = "TorchSparse 4.2, 4.3; PCEngine 4 (coded CSR); Minuet 5.2";
  description.options = Schema();
  description.extra_variants = {
      "epsilon=1,threshold=1000000",                           // one padded batch
      "grouping=sorted_adaptive,epsilon=1,threshold=1000000",  // the same, sorted
      "threshold=0",                                           // no batch
      "tile=4",
      "order=weight,tile=3,scatter_tile=5",
      "buffer_mib=1",
      "grouping=fixed,map=coded_csr,buffer_mib=1",
      // CUDA alone.
      "tile=64,vector_bytes=4",
      "offsets_per_launch=1,buffer_mib=1",
      "map=coded_csr,tile=8,vector_bytes=8,offsets_per_launch=5",
      "grouping=separate,streams=4",
  };
  return registry.dataflows().Register(
      std::move(description),
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Dataflow>> {
        const int64_t vector_bytes = options.GetInt("vector_bytes");
        if ((vector_bytes & (vector_bytes - 1)) != 0) {
          return absl::InvalidArgumentError(
              absl::StrCat(kName, ": vector_bytes=", vector_bytes, ": allowed are 2, 4, 8 and 16"));
        }
        return std::make_unique<GatherGemmScatter>(std::move(options));
      });
}

}  // namespace voxconv
