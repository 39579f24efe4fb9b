// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/measure/ab/work.h"
#include "voxconv/measure/layer_work.h"
#include "voxconv/verify/gate.h"

namespace voxconv::ab {
namespace {

// One side: its plugins and coordinates, and the map that it made last.
class MapRunner {
 public:
  static absl::StatusOr<std::shared_ptr<MapRunner>> Create(
      const measure::LayerProblem& problem, const measure::Configuration& configuration,
      const Registry& registry, const ExecutionContext& context) {
    VOXCONV_ASSIGN_OR_RETURN(
        measure::LayerMapper mapper,
        measure::LayerMapper::Create(problem, configuration, registry, context));
    std::shared_ptr<MapRunner> runner(new MapRunner(std::move(mapper), context));
    VOXCONV_RETURN_IF_ERROR(runner->Build(context));
    return runner;
  }

  absl::StatusOr<measure::Measurement> Run() {
    return measure::Measure(context_,
                            [this](const ExecutionContext& context) { return Build(context); });
  }

  absl::StatusOr<KernelMap> Pairs() const {
    return context_.backend->map_ops().To(MapForm::kPairs, map_, context_);
  }
  absl::StatusOr<std::vector<float>> PairsPerOffset() const {
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs, Pairs());
    std::vector<float> counts;
    counts.reserve(pairs.num_offsets());
    for (int k = 0; k < pairs.num_offsets(); ++k) {
      counts.push_back(static_cast<float>(pairs.num_pairs(k)));
    }
    return counts;
  }

  const CoordinateSet& inputs() const { return mapper_.inputs(); }
  const CoordinateSet& outputs() const { return mapper_.outputs(); }

 private:
  MapRunner(measure::LayerMapper mapper, const ExecutionContext& context)
      : mapper_(std::move(mapper)), context_(context) {}

  absl::Status Build(const ExecutionContext& context) {
    VOXCONV_ASSIGN_OR_RETURN(map_, mapper_.MakeMap(context));
    return absl::OkStatus();
  }

  measure::LayerMapper mapper_;
  ExecutionContext context_;
  KernelMap map_;
};

Side MakeSide(const std::shared_ptr<MapRunner>& runner) {
  return {[runner] { return runner->Run(); }, [runner] { return runner->PairsPerOffset(); }, {}};
}

}  // namespace

absl::StatusOr<Work> MakeMapWork(const Request& request, const GeometryParams& geometry,
                                 const Registry& registry, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(
      const auto output_coords,
      registry.output_coords().Create(request.a.choice.output_coords, context.backend->kind()));
  VOXCONV_ASSIGN_OR_RETURN(
      const measure::LayerProblem problem,
      measure::MakeLayerProblem(geometry, request.cloud.coords, *output_coords, context));
  for (const auto& [side, configuration] :
       {std::pair("side A", &request.a), std::pair("side B", &request.b)}) {
    if (request.checked) break;
    const absl::Status held =
        HoldMaps(problem, *configuration, request.held_before, registry, context);
    if (!held.ok()) return StatusAt(side, held);
  }
  VOXCONV_ASSIGN_OR_RETURN(auto a, MapRunner::Create(problem, request.a, registry, context));
  VOXCONV_ASSIGN_OR_RETURN(auto b, MapRunner::Create(problem, request.b, registry, context));
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs, a->Pairs());
  if (!request.checked) {
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs_b, b->Pairs());
    VOXCONV_RETURN_IF_ERROR(verify::CompareMaps(pairs, pairs_b, context, "the other side"));
  }

  Work work;
  work.bound = 0;
  // Wide enough for any dataflow that a configuration names, narrow enough for the reference.
  work.layers_to_check = {{geometry, 16, 16}};
  work.title = absl::StrCat("map of ", problem.geometry.ToString(), ", ", a->inputs().size(),
                            " -> ", a->outputs().size(), " voxels, ", pairs.num_pairs(), " pairs");
  work.description = {{"map", problem.geometry.ToString()},
                      {"n_in", a->inputs().size()},
                      {"n_out", a->outputs().size()},
                      {"pairs", pairs.num_pairs()}};
  work.a = MakeSide(a);
  work.b = MakeSide(b);
  return work;
}

}  // namespace voxconv::ab
