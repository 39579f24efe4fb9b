// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/coordinate_rows.h"

#include <utility>

namespace voxconv {
namespace {

// The set's own rows, or the arrays that `split` makes of them.
absl::StatusOr<CoordinateRows> RowsOf(const CoordinateSet& set, bool planar, SplitRows split,
                                      const ExecutionContext& context) {
  if (!planar) return CoordinateRows(set);
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> planes, split(set.rows(), context));
  return CoordinateRows(set, std::move(planes));
}

// An index, and the rows that it was built of. A query whose outputs are the same set uses these
// rows again.
class IndexOfRows final : public MapIndex {
 public:
  IndexOfRows(CoordinateRows rows, SplitRows split, std::unique_ptr<MapIndex> index)
      : rows_(std::move(rows)), split_(split), index_(std::move(index)) {}

  int64_t bytes() const override { return index_->bytes() + rows_.bytes(); }
  const MapIndex& index() const { return *index_; }

  // The rows of `set` in the layout of the index's own rows. Splitting them is Stage::kIndexBuild.
  absl::StatusOr<CoordinateRows> RowsFor(const CoordinateSet& set,
                                         const ExecutionContext& context) const {
    if (!rows_.planar()) return CoordinateRows(set);
    if (set.id() == rows_.set().id()) return rows_;
    const StageScope stage(context, Stage::kIndexBuild);
    return RowsOf(set, /*planar=*/true, split_, context);
  }

 private:
  CoordinateRows rows_;
  SplitRows split_;
  std::unique_ptr<MapIndex> index_;
};

}  // namespace

OptionSchema& AddCoordsOption(OptionSchema& schema) {
  return schema.Enum("coords", {"interleaved", "planar", "scalar"}, "interleaved",
                     "what coordinates are read from: the rows b x y z; four arrays b | x | y | z "
                     "that they are split into before; or the rows, number by number (CUDA only)");
}

bool PlanarCoords(const Options& options) { return options.GetEnum("coords") == "planar"; }

RowsMapping::RowsMapping(Options options, SplitRows split)
    : options_(std::move(options)),
      split_(split),
      symmetric_(options_.GetBool("symmetric")),
      planar_(PlanarCoords(options_)) {}

absl::StatusOr<std::unique_ptr<MapIndex>> RowsMapping::DoBuildIndex(
    const CoordinateSet& inputs, const ExecutionContext& context) const {
  VOXCONV_ASSIGN_OR_RETURN(CoordinateRows rows, RowsOf(inputs, planar_, split_, context));
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<MapIndex> index, BuildOfRows(rows, context));
  return std::make_unique<IndexOfRows>(std::move(rows), split_, std::move(index));
}

absl::StatusOr<KernelMap> RowsMapping::DoQuery(const MapIndex& index, const MapProblem& problem,
                                               const ExecutionContext& context) const {
  const auto& built = static_cast<const IndexOfRows&>(index);
  VOXCONV_ASSIGN_OR_RETURN(const CoordinateRows outputs, built.RowsFor(problem.outputs, context));
  return QueryRows(built.index(), problem, outputs, symmetric_ && problem.geometry.symmetric(),
                   context);
}

}  // namespace voxconv
