#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/backend_support.h"
#include "core/coordinate_rows.h"
#include "mapping/grid/grid_cpu.h"
#include "mapping/grid/grid_cuda.h"
#include "mapping/grid/register.h"

namespace voxconv {
namespace {

class GridMapping final : public Mapping {
 public:
  explicit GridMapping(Options options)
      : options_(std::move(options)),
        symmetric_(options_.GetBool("symmetric")),
        planar_(PlanarCoords(options_)) {}

  static absl::StatusOr<std::unique_ptr<const Mapping>> Create(Options options) {
    if (const std::string& storage = options.GetEnum("storage");
        PlanarCoords(options) && storage != "dense") {
      return absl::InvalidArgumentError(absl::StrCat(
          "coords=planar: storage=", storage, " reads interleaved rows only; allowed with dense"));
    }
    return std::make_unique<GridMapping>(std::move(options));
  }

  const Options& options() const override { return options_; }

  Support Supports(const ConvGeometry&, BackendKind backend) const override {
    return CpuAndCuda("grid", backend);
  }

  absl::StatusOr<std::unique_ptr<MapIndex>> BuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override {
    const StageScope stage(context, Stage::kIndexBuild);
    CoordinateRows rows(inputs);
    if (planar_) {
      VOXCONV_ASSIGN_OR_RETURN(rows, CoordinateRows::Split(inputs, context));
    }
    VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<MapIndex> grid, BuildGrid(rows, context));
    auto index = std::make_unique<IndexOfRows>(std::move(rows), std::move(grid));
    if (Counters* counters = context.counters()) {
      counters->index_bytes = std::max(counters->index_bytes, index->bytes());
    }
    return index;
  }

  absl::StatusOr<KernelMap> Query(const MapIndex& index, const MapProblem& problem,
                                  const ExecutionContext& context) const override {
    const auto& built = static_cast<const IndexOfRows&>(index);
    VOXCONV_ASSIGN_OR_RETURN(const CoordinateRows outputs, built.RowsOf(problem.outputs, context));
    const StageScope stage(context, Stage::kMapQuery);
    const bool symmetric = symmetric_ && problem.geometry.symmetric();
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) {
        const auto& grid = static_cast<const GridCuda&>(built.index());
        return grid.Query(problem, outputs, symmetric, context);
      }
    }
    VOXCONV_CHECK(context.backend->kind() == BackendKind::kCpu);
    const auto& grid = static_cast<const GridCpu&>(built.index());
    return grid.Query(problem, outputs, symmetric, context);
  }

 private:
  absl::StatusOr<std::unique_ptr<MapIndex>> BuildGrid(const CoordinateRows& inputs,
                                                      const ExecutionContext& context) const {
    const int64_t limit_mib = options_.GetInt("memory_limit_mib");
    const bool bitmap = options_.GetEnum("storage") == "bitmap";
    if constexpr (kHaveCuda) {
      if (context.backend->kind() == BackendKind::kCuda) {
        return bitmap ? BuildBitmapGridCuda(inputs.set(), limit_mib, context)
                      : BuildDenseGridCuda(inputs, limit_mib, context);
      }
    }
    VOXCONV_CHECK(context.backend->kind() == BackendKind::kCpu);
    return bitmap ? BuildBitmapGridCpu(inputs.set(), limit_mib, context)
                  : BuildDenseGridCpu(inputs, limit_mib, context);
  }

  Options options_;
  bool symmetric_;
  bool planar_;
};

PluginDescription Describe() {
  PluginDescription description;
  description.name = "grid";
  description.summary = "an array over all cells of the inputs' bounding box, one access a lookup";
  description.source = "TorchSparse 4.2.1 (collision-free grid), Luo & Lai (planar coordinates)";
  description.options.Enum(
      "storage", {"dense", "bitmap"}, "dense",
      "a row number for every cell, or a bit for every cell and a rank for 64 of them");
  AddCoordsOption(description.options)
      .Bool("symmetric", false,
            "query half of the offsets of an odd submanifold kernel and mirror their pairs")
      .Int("memory_limit_mib", 4096, 1, 1 << 20, "largest index to build, in MiB");
  return description;
}

}  // namespace

absl::Status RegisterGridMapping(Registry& registry) {
  return registry.mappings().Register(Describe(), GridMapping::Create);
}

}  // namespace voxconv
