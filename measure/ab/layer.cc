// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/measure/ab/work.h"
#include "voxconv/measure/layer_work.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/matrix.h"
#include "voxconv/verify/sampled_rows.h"

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
  // Before a map is prepared, which reads rows by it. The same fault on both sides would pass a
  // comparison of the two.
  for (const auto& [side, configuration] :
       {std::pair("side A", &request.a), std::pair("side B", &request.b)}) {
    if (request.checked) break;
    const absl::Status held =
        HoldMaps(problem, *configuration, request.held_before, registry, context);
    if (!held.ok()) return StatusAt(side, held);
  }
  const auto make = [&](const measure::Configuration& configuration, Precision precision) {
    return LayerRunner::Create(problem, configuration,
                               ShapeOfLayer(problem.geometry, shape.c_in, shape.c_out, precision),
                               registry, context);
  };
  VOXCONV_ASSIGN_OR_RETURN(std::shared_ptr<LayerRunner> a, make(request.a, request.precision_a));
  VOXCONV_ASSIGN_OR_RETURN(std::shared_ptr<LayerRunner> b, make(request.b, request.precision_b));
  if (!request.checked) VOXCONV_RETURN_IF_ERROR(CompareMaps(*a, *b, context));
  return Runners{std::move(problem), std::move(a), std::move(b)};
}

std::shared_ptr<const HostValues> ValuesFor(const LayerRunner& runner, const LayerShape& shape,
                                            uint64_t seed, Kept* kept) {
  const int64_t features = runner.inputs().size() * shape.c_in;
  const int64_t weights = runner.geometry().num_offsets() * shape.c_in * shape.c_out;
  const std::string key = absl::StrCat(features, " ", weights, " ", seed);
  if (kept != nullptr && kept->values.first == key) return kept->values.second;
  auto values = std::make_shared<const HostValues>(
      HostValues{verify::Values(features, seed), verify::Values(weights, seed + 1)});
  if (kept != nullptr) kept->values = {key, values};
  return values;
}

// The last output of a side against the exact sums, on rows from the first to the last.
absl::StatusOr<verify::SampleCheck> CheckSamples(const LayerRunner& runner, const LayerShape& shape,
                                                 Precision precision, const HostValues& values,
                                                 const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs, runner.Pairs());
  VOXCONV_ASSIGN_OR_RETURN(const reference::KernelMap map, verify::PairsOnHost(pairs, context));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output, runner.Output());
  const verify::Operands operands = verify::RoundedOperands(
      {runner.inputs().size(), runner.outputs().size(), shape.c_in, shape.c_out}, precision,
      values.features, values.weights);
  return verify::RowSample(map, operands).Check(runner.execution(), output);
}

// A replay of the layer, whose output is within `bound` of that of a run.
absl::StatusOr<measure::RunOnce> Capture(const std::shared_ptr<LayerRunner>& runner, double bound) {
  VOXCONV_ASSIGN_OR_RETURN(std::shared_ptr<measure::RecordedLayer> recorded, runner->Record());
  VOXCONV_RETURN_IF_ERROR(recorded->Run().status());
  VOXCONV_RETURN_IF_ERROR(runner->Run(/*rebuild_maps=*/false).status());
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> replayed, recorded->Output());
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> run, runner->Output());
  VOXCONV_RETURN_IF_ERROR(
      verify::CompareOutputs(replayed, run, bound, "the layer that was run").status());
  return [runner, recorded] { return recorded->Run(); };
}

Side MakeSide(const std::shared_ptr<LayerRunner>& runner, bool rebuild_maps, double bound,
              const ExecutionContext& context) {
  Side side;
  side.run = [runner, rebuild_maps] { return runner->Run(rebuild_maps); };
  side.output = [runner] { return runner->Output(); };
  if (!rebuild_maps && context.backend->recorder() != nullptr) {
    side.capture = [runner, bound] { return Capture(runner, bound); };
  }
  return side;
}

}  // namespace

std::string PrecisionsOf(const Request& request) {
  const std::string a(ToString(request.precision_a));
  if (request.precision_a == request.precision_b) return a;
  return absl::StrCat(a, " and ", ToString(request.precision_b));
}

absl::Status HoldMaps(const measure::LayerProblem& problem,
                      const measure::Configuration& configuration, HeldBefore* held_before,
                      const Registry& registry, const ExecutionContext& context) {
  const std::string key =
      absl::StrCat(problem.geometry.ToString(), " ", configuration.choice.mapping, " ",
                   configuration.choice.output_coords);
  if (held_before != nullptr && held_before->maps.contains(key)) return absl::OkStatus();
  VOXCONV_RETURN_IF_ERROR(measure::CheckMapper(problem, configuration, registry, context));
  if (held_before != nullptr) held_before->maps.insert(key);
  return absl::OkStatus();
}

absl::Status CheckSameMaps(const Request& request, const LayerShape& shape,
                           const Registry& registry, const ExecutionContext& context) {
  return MakeRunners(request, shape, registry, context).status();
}

absl::StatusOr<Work> MakeLayerWork(const Request& request, const LayerShape& shape,
                                   const Registry& registry, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const Runners runners, MakeRunners(request, shape, registry, context));
  const auto& [problem, a, b] = runners;
  // Both sides have as many inputs.
  const auto values = ValuesFor(*a, shape, request.seed, request.kept);
  VOXCONV_RETURN_IF_ERROR(a->Load(values->features, values->weights));
  VOXCONV_RETURN_IF_ERROR(b->Load(values->features, values->weights));
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
  work.a = MakeSide(a, request.rebuild_maps, work.bound, context);
  work.b = MakeSide(b, request.rebuild_maps, work.bound, context);
  work.hold = [a = a, b = b, shape, precision_a = request.precision_a,
               precision_b = request.precision_b, values, context]() -> absl::StatusOr<Held> {
    Held held;
    for (const auto& [side, runner, precision] :
         {std::tuple("side A", a.get(), precision_a), std::tuple("side B", b.get(), precision_b)}) {
      const auto sampled = CheckSamples(*runner, shape, precision, *values, context);
      if (!sampled.ok()) return StatusAt(side, sampled.status());
      held = {"sampled rows", sampled->rows, std::max(held.error, sampled->error)};
    }
    return held;
  };
  return work;
}

}  // namespace voxconv::ab
