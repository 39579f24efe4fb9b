// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "voxconv/backends/cpu/split_coordinates.h"
#include "voxconv/mapping/grid/grid_cpu.h"
#include "voxconv/mapping/grid/grid_mapping.h"
#include "voxconv/mapping/grid/register.h"

namespace voxconv {
namespace {

class GridCpuMapping final : public GridMapping {
 public:
  explicit GridCpuMapping(Options options) : GridMapping(std::move(options), SplitCoordinatesCpu) {}

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> BuildOfRows(
      const CoordinateRows& inputs, const ExecutionContext& context) const override {
    if (rules()) return MakeRulesGridCpu(limit_mib());
    if (two_stage()) return MakeTwoStageGridCpu(inputs, limit_mib());
    return bitmap() ? BuildBitmapGridCpu(inputs.set(), limit_mib(), context)
                    : BuildDenseGridCpu(inputs, limit_mib(), context);
  }

  absl::StatusOr<KernelMap> QueryRows(const MapIndex& grid, const MapProblem& problem,
                                      const CoordinateRows& outputs, bool symmetric,
                                      const ExecutionContext& context) const override {
    return static_cast<const GridCpu&>(grid).Query(problem, outputs, symmetric, context);
  }
};

}  // namespace

absl::Status RegisterGridMapping(Registry& registry) {
  return registry.mappings().Register(
      GridMapping::Describe(), BackendKind::kCpu,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
        VOXCONV_RETURN_IF_ERROR(GridMapping::CheckOptions(options));
        if (options.GetEnum("coords") == "scalar") {
          return absl::UnimplementedError("coords=scalar: only CUDA loads rows in one piece");
        }
        return std::make_unique<const GridCpuMapping>(std::move(options));
      });
}

}  // namespace voxconv
