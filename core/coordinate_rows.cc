#include "core/coordinate_rows.h"

#include <utility>

namespace voxconv {

absl::StatusOr<CoordinateRows> CoordinateRows::Split(const CoordinateSet& set,
                                                     const ExecutionContext& context) {
  CoordinateRows result(set);
  result.planar_ = true;
  VOXCONV_ASSIGN_OR_RETURN(result.planes_, context.backend->SplitCoordinates(set.rows(), context));
  return result;
}

OptionSchema& AddCoordsOption(OptionSchema& schema) {
  return schema.Enum("coords", {"interleaved", "planar"}, "interleaved",
                     "what coordinates are read from: the rows b x y z, or four arrays b | x | y | "
                     "z that they are split into before");
}

bool PlanarCoords(const Options& options) { return options.GetEnum("coords") == "planar"; }

absl::StatusOr<CoordinateRows> IndexOfRows::RowsOf(const CoordinateSet& set,
                                                   const ExecutionContext& context) const {
  if (!rows_.planar()) return CoordinateRows(set);
  if (set.id() == rows_.set().id()) return rows_;
  const StageScope stage(context, Stage::kIndexBuild);
  return CoordinateRows::Split(set, context);
}

}  // namespace voxconv
