// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/mapping.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace voxconv {
namespace {

absl::Status CheckNumber(absl::string_view what, int64_t number, int64_t expected) {
  if (number == expected) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the kernel map has ", number, " ", what, "; the problem has ", expected));
}

// What the plugin says of `geometry`.
template <typename Ask>
Support AskForSupport(const NamedPlugin& plugin, const Ask& ask) {
  absl::StatusOr<Support> support =
      CallPlugin(plugin, "DoSupports", [&]() -> absl::StatusOr<Support> { return ask(); });
  return support.ok() ? *std::move(support)
                      : Support::Failed(std::string(support.status().message()));
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
      VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr set,
                               NonNull(compute_(*last, geometry, context), "DoCompute"));
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

Support Mapping::Supports(const ConvGeometry& geometry) const {
  return AskForSupport(*this, [&] { return DoSupports(geometry); });
}

absl::StatusOr<std::unique_ptr<MapIndex>> Mapping::BuildIndex(
    const CoordinateSet& inputs, const ExecutionContext& context) const {
  const StageScope stage(context, Stage::kIndexBuild);
  return CallPluginForPointer(
      *this, "DoBuildIndex", [&]() -> absl::StatusOr<std::unique_ptr<MapIndex>> {
        VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<MapIndex> index, DoBuildIndex(inputs, context));
        if (Counters* counters = context.counters(); counters != nullptr && index != nullptr) {
          counters->index_bytes = std::max(counters->index_bytes, index->bytes());
        }
        return index;
      });
}

absl::StatusOr<KernelMap> Mapping::Query(const MapIndex& index, const MapProblem& problem,
                                         const ExecutionContext& context) const {
  const StageScope stage(context, Stage::kMapQuery);
  VOXCONV_ASSIGN_OR_RETURN(KernelMap map, CallPlugin(*this, "DoQuery", [&] {
                             return DoQuery(index, problem, context);
                           }));
  const absl::Status sizes = CheckQueriedMap(map, problem);
  if (!sizes.ok()) return StatusOfCall(*this, "DoQuery", sizes);
  return map;
}

absl::Status CheckQueriedMap(const KernelMap& map, const MapProblem& problem) {
  VOXCONV_RETURN_IF_ERROR(CheckNumber("inputs", map.num_inputs(), problem.inputs.size()));
  VOXCONV_RETURN_IF_ERROR(CheckNumber("outputs", map.num_outputs(), problem.outputs.size()));
  VOXCONV_RETURN_IF_ERROR(
      CheckNumber("offsets", map.num_offsets(), problem.geometry.num_offsets()));
  const absl::Status sizes = map.CheckSizes();
  if (sizes.ok()) return sizes;
  return absl::InternalError(absl::StrCat("the kernel map is wrong: ", sizes.message()));
}

Support OutputCoords::Supports(const ConvGeometry& geometry) const {
  return AskForSupport(*this, [&] { return DoSupports(geometry); });
}

absl::StatusOr<CoordinateSetPtr> OutputCoords::Compute(const CoordinateSet& inputs,
                                                       const ConvGeometry& geometry,
                                                       const ExecutionContext& context) const {
  const StageScope stage(context, Stage::kOutputCoords);
  return CallPluginForPointer(*this, "DoCompute",
                              [&] { return DoCompute(inputs, geometry, context); });
}

absl::StatusOr<std::unique_ptr<PendingCoordinates>> OutputCoords::Begin(
    const CoordinateSet& inputs, absl::Span<const ConvGeometry> geometries,
    const ExecutionContext& context) const {
  const StageScope stage(context, Stage::kOutputCoords);
  VOXCONV_ASSIGN_OR_RETURN(
      std::unique_ptr<PendingCoordinates> pending,
      CallPluginForPointer(*this, "DoBegin", [&] { return DoBegin(inputs, geometries, context); }));
  pending->maker_ = this;
  pending->num_sets_ = geometries.size();
  return pending;
}

absl::StatusOr<std::vector<CoordinateSetPtr>> OutputCoords::Finish(
    std::unique_ptr<PendingCoordinates> pending, const ExecutionContext& context) {
  const StageScope stage(context, Stage::kOutputCoords);
  const OutputCoords& maker = *pending->maker_;
  VOXCONV_ASSIGN_OR_RETURN(
      std::vector<CoordinateSetPtr> sets,
      CallPlugin(maker, "PendingCoordinates::Finish", [&] { return pending->Finish(context); }));
  const bool has_null = std::find(sets.begin(), sets.end(), nullptr) != sets.end();
  if (sets.size() == pending->num_sets_ && !has_null) return sets;
  return StatusOfCall(
      maker, "PendingCoordinates::Finish",
      absl::InternalError(has_null ? "returned a null set"
                                   : absl::StrCat("returned ", sets.size(), " sets; ",
                                                  pending->num_sets_, " were asked for")));
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
