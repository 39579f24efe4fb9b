#include <utility>

#include "absl/strings/str_cat.h"
#include "measure/ab/work.h"
#include "measure/layer_work.h"
#include "verify/gate.h"
#include "verify/matrix.h"

namespace voxconv::ab {
namespace {

using measure::LayerRunner;

absl::StatusOr<std::shared_ptr<LayerRunner>> MakeRunner(const measure::LayerProblem& problem,
                                                        const measure::Configuration& configuration,
                                                        DType dtype, const Request& request,
                                                        const LayerShape& shape,
                                                        const Registry& registry,
                                                        const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(std::shared_ptr<LayerRunner> runner,
                           LayerRunner::Create(problem, configuration, registry, context));
  const int64_t weights = runner->geometry().num_offsets() * shape.c_in * shape.c_out;
  VOXCONV_RETURN_IF_ERROR(
      runner->Load(verify::Values(runner->inputs().size() * shape.c_in, request.seed),
                   verify::Values(weights, request.seed + 1), shape.c_in, shape.c_out, dtype));
  return runner;
}

absl::Status CompareMaps(const LayerRunner& a, const LayerRunner& b,
                         const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const auto rows_a, CopyToHost(a.outputs().rows(), context));
  VOXCONV_ASSIGN_OR_RETURN(const auto rows_b, CopyToHost(b.outputs().rows(), context));
  if (rows_a != rows_b) return absl::InternalError("A and B have different output coordinates");
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs_a, a.Pairs());
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs_b, b.Pairs());
  return verify::CompareMaps(pairs_a, pairs_b, context, "the other side");
}

Side MakeSide(const std::shared_ptr<LayerRunner>& runner, bool rebuild_maps) {
  return {[runner, rebuild_maps] { return runner->Run(rebuild_maps); },
          [runner] { return runner->Output(); }};
}

}  // namespace

std::string DTypesOf(const Request& request) {
  const std::string a(ToString(request.dtype_a));
  if (request.dtype_a == request.dtype_b) return a;
  return absl::StrCat(a, " and ", ToString(request.dtype_b));
}

std::vector<Coordinate> RowsOf(const VoxelizedCloud& cloud) {
  std::vector<Coordinate> rows;
  rows.reserve(cloud.coords.size());
  for (const auto& c : cloud.coords) rows.push_back({c[0], c[1], c[2], c[3]});
  return rows;
}

absl::StatusOr<Work> MakeLayerWork(const Request& request, const LayerShape& shape,
                                   const Registry& registry, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const auto output_coords,
                           registry.output_coords().Create(request.a.choice.output_coords));
  VOXCONV_ASSIGN_OR_RETURN(
      const measure::LayerProblem problem,
      measure::MakeLayerProblem(shape.geometry, RowsOf(request.cloud), *output_coords, context));
  VOXCONV_ASSIGN_OR_RETURN(
      auto a, MakeRunner(problem, request.a, request.dtype_a, request, shape, registry, context));
  VOXCONV_ASSIGN_OR_RETURN(
      auto b, MakeRunner(problem, request.b, request.dtype_b, request, shape, registry, context));
  VOXCONV_RETURN_IF_ERROR(CompareMaps(*a, *b, context));
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs, a->Pairs());

  Work work;
  work.bound = verify::DifferenceBound(a->precision(), b->precision(),
                                       problem.geometry.num_offsets() * shape.c_in,
                                       /*same_operands=*/request.dtype_a == request.dtype_b);
  work.layers_to_check = {shape};
  work.title = absl::StrCat(problem.geometry.ToString(), ", ", shape.c_in, " -> ", shape.c_out,
                            " channels, ", a->inputs().size(), " -> ", a->outputs().size(),
                            " voxels, ", pairs.num_pairs(), " pairs");
  work.description = {{"layer", problem.geometry.ToString()},
                      {"dtype", DTypesOf(request)},
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
