// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/parse.h"
#include "voxconv/io/voxelize.h"
#include "voxconv/measure/ab/gate.h"
#include "voxconv/measure/ab/work.h"
#include "voxconv/measure/checked_maps.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/measure/network_frame.h"
#include "voxconv/networks/executor.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"
#include "voxconv/verify/network_bound.h"

namespace voxconv::ab {
namespace {

// One side's network with the input that both share.
class NetworkSide {
 public:
  NetworkSide(std::unique_ptr<NetworkRunner> runner, std::shared_ptr<const SparseTensor> input,
              const ExecutionContext& context)
      : runner_(std::move(runner)), input_(std::move(input)), context_(context) {}

  absl::StatusOr<measure::Measurement> Run() {
    VOXCONV_ASSIGN_OR_RETURN(const measure::FrameTime time,
                             measure::TimeFrame(*runner_, input_->view(), context_, result_));
    return measure::Measurement{time.wall_ms, result_.report.total};
  }
  absl::StatusOr<std::vector<float>> Output() const {
    return result_.output.features().ToHost(context_);
  }

 private:
  std::unique_ptr<NetworkRunner> runner_;
  std::shared_ptr<const SparseTensor> input_;
  ExecutionContext context_;
  RunResult result_;
};

Side MakeSide(const std::shared_ptr<NetworkSide>& side) {
  return {[side] { return side->Run(); }, [side] { return side->Output(); }};
}

absl::StatusOr<NetworkGraph> MakeGraph(const NetworkShape& shape, uint64_t seed) {
  VOXCONV_ASSIGN_OR_RETURN(NetworkGraph graph,
                           MakeModel(shape.name, {.width = shape.width, .grid = shape.grid}));
  InitializeParameters(graph, seed);
  return graph;
}

// The kinds of layers that the networks have, narrow enough for the reference.
std::vector<LayerShape> TypicalLayers(const NetworkGraph& graph) {
  std::vector<LayerShape> layers = {{{.kind = ConvKind::kSubmanifold}, 16, 16}};
  for (int id : graph.Convolutions()) {
    const GeometryParams& geometry = graph.node(id).geometry;
    if (geometry.kind == ConvKind::kSubmanifold) continue;
    LayerShape layer{geometry, 16, 16};
    layer.geometry.input_tensor_stride = {1, 1, 1};
    layer.geometry.output_bounds.reset();  // which are for voxels of the layer's own stride
    const bool known = std::any_of(layers.begin(), layers.end(), [&](const LayerShape& other) {
      return other.geometry == layer.geometry;
    });
    if (!known) layers.push_back(layer);
  }
  return layers;
}

// One frame in f32 whose maps are all held against their definition before a dataflow reads rows by
// them.
absl::StatusOr<RunResult> RunWithCheckedMaps(const NetworkGraph& graph,
                                             const measure::Configuration& configuration,
                                             const SparseTensor& input, const Registry& registry,
                                             const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(
      const Registry checked,
      measure::WithCheckedMaps(registry, [](absl::string_view) { return true; }));
  RunConfig config;
  config.planner = measure::MakePlanner(configuration);
  config.count_pairs = false;
  config.parallel_maps = false;  // a check waits for its map
  VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<NetworkRunner> runner,
                           NetworkRunner::Create(graph, config, checked, *context.backend));
  VOXCONV_ASSIGN_OR_RETURN(RunResult result, runner->Run(input.view()));
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  return result;
}

struct NamedSide {
  const char* name;
  Side side;
  Precision precision;
};

// The last outputs of the sides against what the trusted pair makes of the same input.
absl::StatusOr<Held> HoldToTrusted(const NetworkGraph& graph, const std::vector<NamedSide>& sides,
                                   const SparseTensor& input, const Registry& registry,
                                   const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const measure::Defaults defaults, measure::LoadDefaults());
  measure::Configuration trusted;
  trusted.choice = defaults.trusted;
  const std::string pair =
      absl::StrCat("the trusted pair, ", trusted.choice.mapping, "/", trusted.choice.dataflow);
  const absl::StatusOr<RunResult> made =
      RunWithCheckedMaps(graph, trusted, input, registry, context);
  if (!made.ok()) return StatusAt(pair, made.status());
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> expected,
                           made->output.features().ToHost(context));
  Held held{"the trusted pair", made->output.features().rows(), 0};
  for (const NamedSide& named : sides) {
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output, named.side.output());
    const absl::StatusOr<double> error = verify::CompareOutputs(
        output, expected, verify::NetworkBound(graph, named.precision, Precision::kF32), pair);
    if (!error.ok()) return StatusAt(named.name, error.status());
    held.error = std::max(held.error, *error);
  }
  return held;
}

}  // namespace

absl::StatusOr<Work> MakeNetworkWork(const Request& request, const NetworkShape& shape,
                                     const Registry& registry, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const NetworkGraph graph, MakeGraph(shape, request.seed));
  VOXCONV_ASSIGN_OR_RETURN(SparseTensor tensor,
                           MakeSparseTensor(request.cloud, graph.in_channels(), context));
  const auto input = std::make_shared<const SparseTensor>(std::move(tensor));

  // Pair by pair: an output that lacks a few pairs could hide within the bound.
  for (const LayerShape& layer : TypicalLayers(graph)) {
    VOXCONV_RETURN_IF_ERROR(CheckSameMaps(request, layer, registry, context));
  }
  for (const auto& [side, configuration] :
       {std::pair("side A", &request.a), std::pair("side B", &request.b)}) {
    const absl::StatusOr<RunResult> held =
        RunWithCheckedMaps(graph, *configuration, *input, registry, context);
    if (!held.ok()) return StatusAt(side, held.status());
  }

  Work work;
  for (const auto& [configuration, precision, side] :
       {std::tuple(&request.a, request.precision_a, &work.a),
        std::tuple(&request.b, request.precision_b, &work.b)}) {
    RunConfig config;
    config.planner = measure::MakePlanner(*configuration);
    config.precision = precision;
    config.keep_maps = !request.rebuild_maps;
    config.profile_stages = request.stage_times || context.backend->kind() == BackendKind::kCpu;
    config.count_pairs = false;
    VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<NetworkRunner> runner,
                             NetworkRunner::Create(graph, config, registry, *context.backend));
    *side = MakeSide(std::make_shared<NetworkSide>(std::move(runner), input, context));
  }
  work.hold = [graph = std::make_shared<const NetworkGraph>(graph), input, &registry, context,
               sides = std::vector<NamedSide>{{"side A", work.a, request.precision_a},
                                              {"side B", work.b, request.precision_b}}] {
    return HoldToTrusted(*graph, sides, *input, registry, context);
  };
  const size_t convolutions = graph.Convolutions().size();
  work.bound = verify::NetworkBound(graph, request.precision_a, request.precision_b);
  work.layers_to_check = TypicalLayers(graph);
  const std::string grid = BoxText(shape.grid);
  work.title = absl::StrCat(
      shape.name, ", width ", shape.width, grid.empty() ? "" : absl::StrCat(", grid ", grid), ", ",
      convolutions, " convolutions, ", request.cloud.size(), " voxels, ", PrecisionsOf(request));
  work.description = {{"network", shape.name},
                      {"width", shape.width},
                      {"dtype", PrecisionsOf(request)},
                      {"convolutions", convolutions},
                      {"n_in", request.cloud.size()}};
  if (!grid.empty()) work.description["grid"] = grid;
  return work;
}

}  // namespace voxconv::ab
