#include "core/mapping.h"

namespace voxconv {

absl::StatusOr<std::vector<CoordinateSetPtr>> OutputCoords::ComputeChain(
    const CoordinateSet& inputs, absl::Span<const ConvGeometry> geometries,
    const ExecutionContext& context, const std::function<void()>& meanwhile) const {
  if (meanwhile) meanwhile();
  std::vector<CoordinateSetPtr> sets;
  const CoordinateSet* last = &inputs;
  for (const ConvGeometry& geometry : geometries) {
    VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr set,
                             NonNull(Compute(*last, geometry, context), "output_coords: Compute"));
    last = set.get();
    sets.push_back(std::move(set));
  }
  return sets;
}

}  // namespace voxconv
