// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/mapping.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace voxconv {
namespace {

absl::Status CheckNumber(absl::string_view what, int64_t number, int64_t expected) {
  if (number == expected) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("mapping: its kernel map has ", number, " ", what,
                                          "; the problem has ", expected));
}

// Computes the sets one after the other.
class ComputedInFinish final : public PendingCoordinates {
 public:
  using Compute = std::function<absl::StatusOr<CoordinateSetPtr>(
      const CoordinateSet&, const ConvGeometry&, const ExecutionContext&)>;

  ComputedInFinish(const CoordinateSet& inputs, absl::Span<const ConvGeometry> geometries,
                   Compute compute)
      : inputs_(inputs), geometries_(geometries), compute_(std::move(compute)) {}

  absl::StatusOr<std::vector<CoordinateSetPtr>> Finish(const ExecutionContext& context) override {
    std::vector<CoordinateSetPtr> sets;
    const CoordinateSet* last = &inputs_;
    for (const ConvGeometry& geometry : geometries_) {
      VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr set, NonNull(compute_(*last, geometry, context),
                                                             "output_coords: DoCompute"));
      last = set.get();
      sets.push_back(std::move(set));
    }
    return sets;
  }

 private:
  const CoordinateSet& inputs_;
  absl::Span<const ConvGeometry> geometries_;
  Compute compute_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MapIndex>> Mapping::BuildIndex(
    const CoordinateSet& inputs, const ExecutionContext& context) const {
  const StageScope stage(context, Stage::kIndexBuild);
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<MapIndex> index,
                           NonNull(DoBuildIndex(inputs, context), "mapping: DoBuildIndex"));
  if (Counters* counters = context.counters()) {
    counters->index_bytes = std::max(counters->index_bytes, index->bytes());
  }
  return index;
}

absl::StatusOr<KernelMap> Mapping::Query(const MapIndex& index, const MapProblem& problem,
                                         const ExecutionContext& context) const {
  const StageScope stage(context, Stage::kMapQuery);
  VOXCONV_ASSIGN_OR_RETURN(KernelMap map, DoQuery(index, problem, context));
  VOXCONV_RETURN_IF_ERROR(CheckQueriedMap(map, problem));
  return map;
}

absl::Status CheckQueriedMap(const KernelMap& map, const MapProblem& problem) {
  VOXCONV_RETURN_IF_ERROR(CheckNumber("inputs", map.num_inputs(), problem.inputs.size()));
  VOXCONV_RETURN_IF_ERROR(CheckNumber("outputs", map.num_outputs(), problem.outputs.size()));
  VOXCONV_RETURN_IF_ERROR(
      CheckNumber("offsets", map.num_offsets(), problem.geometry.num_offsets()));
  const absl::Status sizes = map.CheckSizes();
  if (sizes.ok()) return sizes;
  return absl::InternalError(absl::StrCat("mapping: ", sizes.message()));
}

absl::StatusOr<CoordinateSetPtr> OutputCoords::Compute(const CoordinateSet& inputs,
                                                       const ConvGeometry& geometry,
                                                       const ExecutionContext& context) const {
  const StageScope stage(context, Stage::kOutputCoords);
  return NonNull(DoCompute(inputs, geometry, context), "output_coords: DoCompute");
}

absl::StatusOr<std::unique_ptr<PendingCoordinates>> OutputCoords::Begin(
    const CoordinateSet& inputs, absl::Span<const ConvGeometry> geometries,
    const ExecutionContext& context) const {
  const StageScope stage(context, Stage::kOutputCoords);
  return NonNull(DoBegin(inputs, geometries, context), "output_coords: DoBegin");
}

absl::StatusOr<std::vector<CoordinateSetPtr>> OutputCoords::Finish(
    std::unique_ptr<PendingCoordinates> pending, const ExecutionContext& context) {
  const StageScope stage(context, Stage::kOutputCoords);
  return pending->Finish(context);
}

absl::StatusOr<std::unique_ptr<PendingCoordinates>> OutputCoords::DoBegin(
    const CoordinateSet& inputs, absl::Span<const ConvGeometry> geometries,
    const ExecutionContext&) const {
  return std::make_unique<ComputedInFinish>(
      inputs, geometries,
      [this](const CoordinateSet& set, const ConvGeometry& geometry,
             const ExecutionContext& context) { return DoCompute(set, geometry, context); });
}

}  // namespace voxconv
