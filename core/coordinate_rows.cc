#include "core/coordinate_rows.h"

#include <utility>

namespace voxconv {

OptionSchema& AddCoordsOption(OptionSchema& schema) {
  return schema.Enum("coords", {"interleaved", "planar"}, "interleaved",
                     "what coordinates are read from: the rows b x y z, or four arrays b | x | y | "
                     "z that they are split into before");
}

bool PlanarCoords(const Options& options) { return options.GetEnum("coords") == "planar"; }

absl::StatusOr<CoordinateRows> RowsOf(const CoordinateSet& set, bool planar, SplitRows split,
                                      const ExecutionContext& context) {
  if (!planar) return CoordinateRows(set);
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> planes, split(set.rows(), context));
  return CoordinateRows(set, std::move(planes));
}

absl::StatusOr<CoordinateRows> IndexOfRows::RowsOf(const CoordinateSet& set,
                                                   const ExecutionContext& context) const {
  if (!rows_.planar()) return CoordinateRows(set);
  if (set.id() == rows_.set().id()) return rows_;
  const StageScope stage(context, Stage::kIndexBuild);
  return voxconv::RowsOf(set, /*planar=*/true, split_, context);
}

}  // namespace voxconv
