// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "voxconv/backends/cuda/split_coordinates.h"
#include "voxconv/mapping/grid/grid_cuda.h"
#include "voxconv/mapping/grid/grid_mapping.h"
#include "voxconv/mapping/grid/register.h"

namespace voxconv {
namespace {

class GridCudaMapping final : public GridMapping {
 public:
  explicit GridCudaMapping(Options options)
      : GridMapping(std::move(options), SplitCoordinatesCuda) {}

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> BuildOfRows(
      const CoordinateRows& inputs, const ExecutionContext& context) const override {
    if (rules()) return MakeRulesGridCuda(limit_mib());
    if (two_stage()) return MakeTwoStageGridCuda(inputs, limit_mib(), scalar());
    return bitmap() ? BuildBitmapGridCuda(inputs.set(), limit_mib(), context)
                    : BuildDenseGridCuda(inputs, limit_mib(), scalar(), context);
  }

  absl::StatusOr<KernelMap> QueryRows(const MapIndex& grid, const MapProblem& problem,
                                      const CoordinateRows& outputs, bool symmetric,
                                      const ExecutionContext& context) const override {
    return static_cast<const GridCuda&>(grid).Query(problem, outputs, symmetric, context);
  }
};

}  // namespace

absl::Status RegisterGridMappingCuda(Registry& registry) {
  return registry.mappings().Implement(
      "grid", BackendKind::kCuda,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
        VOXCONV_RETURN_IF_ERROR(GridMapping::CheckOptions(options));
        return std::make_unique<const GridCudaMapping>(std::move(options));
      });
}

}  // namespace voxconv
