// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/output_coords/output_coords_cuda.h"

#include <memory>
#include <utility>
#include <vector>

#include "voxconv/mapping/output_coords/output_coords.h"
#include "voxconv/mapping/output_coords/register.h"

namespace voxconv {
namespace {

class OutputCoordsCuda final : public ExpandingOutputCoords {
 public:
  OutputCoordsCuda(ExpansionCuda expansion, Options given)
      : ExpandingOutputCoords(std::move(given)), rule_{expansion, 0} {
    if (expansion == ExpansionCuda::kLocationTable)
      rule_.max_table_bytes = MaxTableBytes(options());
  }

 protected:
  absl::StatusOr<CoordinateSetPtr> DoCompute(const CoordinateSet& inputs,
                                             const ConvGeometry& geometry,
                                             const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<PendingCoordinates> pending,
                             DoBegin(inputs, {&geometry, 1}, context));
    VOXCONV_ASSIGN_OR_RETURN(std::vector<CoordinateSetPtr> sets, pending->Finish(context));
    return std::move(sets[0]);
  }

  absl::StatusOr<std::unique_ptr<PendingCoordinates>> DoBegin(
      const CoordinateSet& inputs, absl::Span<const ConvGeometry> geometries,
      const ExecutionContext& context) const override {
    for (const ConvGeometry& geometry : geometries) VOXCONV_CHECK(Supports(geometry).ok);
    return BeginChainCuda(rule_, inputs, geometries, context);
  }

 private:
  ExpansionRuleCuda rule_;
};

}  // namespace

absl::Status RegisterOutputCoordsCuda(Registry& registry) {
  for (const auto& [name, expansion] : {std::pair{"sort_unique", ExpansionCuda::kSortUnique},
                                        {"staged", ExpansionCuda::kStaged},
                                        {"fused", ExpansionCuda::kFused},
                                        {"appended", ExpansionCuda::kAppended},
                                        {"location_table", ExpansionCuda::kLocationTable}}) {
    VOXCONV_RETURN_IF_ERROR(registry.output_coords().Implement(
        name, BackendKind::kCuda,
        [expansion =
             expansion](Options options) -> absl::StatusOr<std::unique_ptr<const OutputCoords>> {
          return std::make_unique<const OutputCoordsCuda>(expansion, std::move(options));
        }));
  }
  return absl::OkStatus();
}

}  // namespace voxconv
