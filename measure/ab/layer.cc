#include <utility>

#include "absl/strings/str_cat.h"
#include "measure/ab/work.h"
#include "measure/layer_work.h"
#include "verify/gate.h"
#include "verify/matrix.h"

namespace voxconv::ab {
namespace {

using measure::LayerRunner;

struct Runners {
  measure::LayerProblem problem;
  std::shared_ptr<LayerRunner> a, b;
};

absl::Status CompareMaps(const LayerRunner& a, const LayerRunner& b,
                         const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const auto rows_a, CopyToHost(a.outputs().rows(), context));
  VOXCONV_ASSIGN_OR_RETURN(const auto rows_b, CopyToHost(b.outputs().rows(), context));
  if (rows_a != rows_b) return absl::InternalError("A and B have different output coordinates");
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs_a, a.Pairs());
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs_b, b.Pairs());
  return verify::CompareMaps(pairs_a, pairs_b, context, "the other side");
}

// Both sides with their maps, which hold the same pairs.
absl::StatusOr<Runners> MakeRunners(const Request& request, const LayerShape& shape,
                                    const Registry& registry, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(
      const auto output_coords,
      registry.output_coords().Create(request.a.choice.output_coords, context.backend->kind()));
  VOXCONV_ASSIGN_OR_RETURN(
      measure::LayerProblem problem,
      measure::MakeLayerProblem(shape.geometry, request.cloud.coords, *output_coords, context));
  const auto make = [&](const measure::Configuration& configuration, Precision precision) {
    return LayerRunner::Create(problem, configuration,
                               ShapeOfLayer(problem.geometry, shape.c_in, shape.c_out, precision),
                               registry, context);
  };
  VOXCONV_ASSIGN_OR_RETURN(std::shared_ptr<LayerRunner> a, make(request.a, request.precision_a));
  VOXCONV_ASSIGN_OR_RETURN(std::shared_ptr<LayerRunner> b, make(request.b, request.precision_b));
  VOXCONV_RETURN_IF_ERROR(CompareMaps(*a, *b, context));
  return Runners{std::move(problem), std::move(a), std::move(b)};
}

absl::Status Load(LayerRunner& runner, const LayerShape& shape, uint64_t seed) {
  const int64_t weights = runner.geometry().num_offsets() * shape.c_in * shape.c_out;
  return runner.Load(verify::Values(runner.inputs().size() * shape.c_in, seed),
                     verify::Values(weights, seed + 1));
}

Side MakeSide(const std::shared_ptr<LayerRunner>& runner, bool rebuild_maps) {
  return {[runner, rebuild_maps] { return runner->Run(rebuild_maps); },
          [runner] { return runner->Output(); }};
}

}  // namespace

std::string PrecisionsOf(const Request& request) {
  const std::string a(ToString(request.precision_a));
  if (request.precision_a == request.precision_b) return a;
  return absl::StrCat(a, " and ", ToString(request.precision_b));
}

absl::Status CheckSameMaps(const Request& request, const LayerShape& shape,
                           const Registry& registry, const ExecutionContext& context) {
  return MakeRunners(request, shape, registry, context).status();
}

absl::StatusOr<Work> MakeLayerWork(const Request& request, const LayerShape& shape,
                                   const Registry& registry, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const Runners runners, MakeRunners(request, shape, registry, context));
  const auto& [problem, a, b] = runners;
  VOXCONV_RETURN_IF_ERROR(Load(*a, shape, request.seed));
  VOXCONV_RETURN_IF_ERROR(Load(*b, shape, request.seed));
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs, a->Pairs());

  Work work;
  work.bound = verify::DifferenceBound(
      a->precision(), b->precision(), problem.geometry.num_offsets() * shape.c_in,
      /*same_operands=*/request.precision_a == request.precision_b);
  work.layers_to_check = {shape};
  work.title = absl::StrCat(problem.geometry.ToString(), ", ", shape.c_in, " -> ", shape.c_out,
                            " channels, ", a->inputs().size(), " -> ", a->outputs().size(),
                            " voxels, ", pairs.num_pairs(), " pairs");
  work.description = {{"layer", problem.geometry.ToString()},
                      {"dtype", PrecisionsOf(request)},
                      {"c_in", shape.c_in},
                      {"c_out", shape.c_out},
                      {"n_in", a->inputs().size()},
                      {"n_out", a->outputs().size()},
                      {"pairs", pairs.num_pairs()}};
  work.a = MakeSide(a, request.rebuild_maps);
  work.b = MakeSide(b, request.rebuild_maps);
  return work;
}

}  // namespace voxconv::ab
