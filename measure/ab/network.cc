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

  absl::StatusOr<measure::Measurement> Replay() {
    VOXCONV_ASSIGN_OR_RETURN(const measure::FrameTime time,
                             measure::TimeReplay(*recorded_, context_));
    return measure::Measurement{time.wall_ms, {}};
  }
  // Checks a replay against a run.
  absl::Status Record() {
    VOXCONV_ASSIGN_OR_RETURN(recorded_, runner_->Record(input_->view()));
    VOXCONV_RETURN_IF_ERROR(Run().status());
    VOXCONV_RETURN_IF_ERROR(Replay().status());
    return measure::CheckReplay(*runner_, recorded_->result().output.features(),
                                result_.output.features(), context_);
  }

 private:
  std::unique_ptr<NetworkRunner> runner_;
  std::shared_ptr<const SparseTensor> input_;
  ExecutionContext context_;
  RunResult result_;
  std::unique_ptr<RecordedFrame> recorded_;  // must not outlive the runner
};

Side MakeSide(const std::shared_ptr<NetworkSide>& network, bool captures) {
  Side side;
  side.run = [network] { return network->Run(); };
  side.output = [network] { return network->Output(); };
  if (captures) {
    side.capture = [network]() -> absl::StatusOr<measure::RunOnce> {
      VOXCONV_RETURN_IF_ERROR(network->Record());
      return [network] { return network->Replay(); };
    };
  }
  return side;
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

struct TrustedOutput {
  std::string pair;  // for messages
  HeldBefore::Output output;
};

// What the trusted pair makes of the input; with `held_before`, once for all requests on it.
absl::StatusOr<TrustedOutput> OutputOfTrusted(const NetworkGraph& graph, const SparseTensor& input,
                                              const std::string& key, HeldBefore* held_before,
                                              const Registry& registry,
                                              const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const measure::Defaults defaults, measure::LoadDefaults());
  measure::Configuration trusted;
  trusted.choice = defaults.trusted;
  TrustedOutput result{
      absl::StrCat("the trusted pair, ", trusted.choice.mapping, "/", trusted.choice.dataflow), {}};
  if (held_before != nullptr) {
    const auto known = held_before->trusted.find(key);
    if (known != held_before->trusted.end()) result.output = known->second;
  }
  if (result.output.rows != 0) return result;
  const absl::StatusOr<RunResult> made =
      RunWithCheckedMaps(graph, trusted, input, registry, context);
  if (!made.ok()) return StatusAt(result.pair, made.status());
  result.output.rows = made->output.features().rows();
  VOXCONV_ASSIGN_OR_RETURN(result.output.values, made->output.features().ToHost(context));
  if (held_before != nullptr) held_before->trusted[key] = result.output;
  return result;
}

// The last outputs of the sides against what the trusted pair makes of the same input.
absl::StatusOr<Held> HoldToTrusted(const NetworkGraph& graph, const std::vector<NamedSide>& sides,
                                   const TrustedOutput& trusted) {
  const std::vector<float>& expected = trusted.output.values;
  const std::string& pair = trusted.pair;
  Held held{"the trusted pair", trusted.output.rows, 0};
  for (const NamedSide& named : sides) {
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output, named.side.output());
    const absl::StatusOr<double> error = verify::CompareOutputs(
        output, expected, verify::NetworkBound(graph, named.precision, Precision::kF32), pair);
    if (!error.ok()) return StatusAt(named.name, error.status());
    held.error = std::max(held.error, *error);
  }
  return held;
}

// What decides on a side's maps. Dataflows that share them need no check of their own.
measure::Json WithoutDataflows(measure::Json json) {
  if (json.is_object()) json.erase("dataflow");
  for (measure::Json& value : json) {
    if (value.is_structured()) value = WithoutDataflows(std::move(value));
  }
  return json;
}

// Pair by pair, and with each side's whole network: an output that lacks a few pairs could hide
// within the bound.
absl::Status CheckMaps(const Request& request, const NetworkGraph& graph,
                       const std::string& network, const SparseTensor& input,
                       const Registry& registry, const ExecutionContext& context) {
  for (const LayerShape& layer : TypicalLayers(graph)) {
    VOXCONV_RETURN_IF_ERROR(CheckSameMaps(request, layer, registry, context));
  }
  for (const auto& [side, configuration] :
       {std::pair("side A", &request.a), std::pair("side B", &request.b)}) {
    const std::string key =
        absl::StrCat(network, " ", WithoutDataflows(measure::ToJson(*configuration)).dump());
    if (request.held_before != nullptr && request.held_before->maps.contains(key)) continue;
    const absl::StatusOr<RunResult> held =
        RunWithCheckedMaps(graph, *configuration, input, registry, context);
    if (!held.ok()) return StatusAt(side, held.status());
    if (request.held_before != nullptr) request.held_before->maps.insert(key);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const NetworkGraph>> GraphOf(const NetworkShape& shape,
                                                            const std::string& network,
                                                            const Request& request) {
  const std::string key = absl::StrCat(network, " ", request.seed);
  if (request.kept != nullptr) {
    const auto known = request.kept->graphs.find(key);
    if (known != request.kept->graphs.end()) return known->second;
  }
  VOXCONV_ASSIGN_OR_RETURN(NetworkGraph graph, MakeGraph(shape, request.seed));
  auto made = std::make_shared<const NetworkGraph>(std::move(graph));
  if (request.kept != nullptr) request.kept->graphs[key] = made;
  return made;
}

// A side, or the one of an earlier request that is the same.
absl::StatusOr<Side> SideOf(const Request& request, char letter,
                            const measure::Configuration& configuration, Precision precision,
                            const NetworkGraph& graph, const std::string& network,
                            const std::shared_ptr<const SparseTensor>& input,
                            const Registry& registry, const ExecutionContext& context) {
  const bool stages = request.stage_times || context.backend->kind() == BackendKind::kCpu;
  const std::string key =
      absl::StrCat(std::string(1, letter), " ", network, " ", request.seed, " ",
                   ToString(precision), request.rebuild_maps ? " rebuilt" : "",
                   stages ? " stages " : " ", measure::ToJson(configuration).dump());
  if (request.kept != nullptr) {
    for (const auto& [of, side] : request.kept->sides) {
      if (of == key) return side;
    }
  }
  RunConfig config;
  config.planner = measure::MakePlanner(configuration);
  config.precision = precision;
  config.keep_maps = !request.rebuild_maps;
  config.profile_stages = stages;
  config.count_pairs = false;
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<NetworkRunner> runner,
                           NetworkRunner::Create(graph, config, registry, *context.backend));
  Side side = MakeSide(std::make_shared<NetworkSide>(std::move(runner), input, context),
                       !request.rebuild_maps && context.backend->recorder() != nullptr);
  if (request.kept != nullptr) {
    constexpr size_t kMostSides = 3;
    auto& sides = request.kept->sides;
    if (sides.size() == kMostSides) sides.erase(sides.begin());
    sides.emplace_back(key, side);
  }
  return side;
}

}  // namespace

absl::StatusOr<Work> MakeNetworkWork(const Request& request, const NetworkShape& shape,
                                     const Registry& registry, const ExecutionContext& context) {
  const std::string network = absl::StrCat(shape.name, " ", shape.width, " ", BoxText(shape.grid));
  VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const NetworkGraph> kept_graph,
                           GraphOf(shape, network, request));
  const NetworkGraph& graph = *kept_graph;
  VOXCONV_ASSIGN_OR_RETURN(SparseTensor tensor,
                           MakeSparseTensor(request.cloud, graph.in_channels(), context));
  const auto input = std::make_shared<const SparseTensor>(std::move(tensor));
  if (!request.checked) {
    VOXCONV_RETURN_IF_ERROR(CheckMaps(request, graph, network, *input, registry, context));
  }

  Work work;
  VOXCONV_ASSIGN_OR_RETURN(work.a, SideOf(request, 'a', request.a, request.precision_a, graph,
                                          network, input, registry, context));
  VOXCONV_ASSIGN_OR_RETURN(work.b, SideOf(request, 'b', request.b, request.precision_b, graph,
                                          network, input, registry, context));
  work.hold = [graph = kept_graph, input, &registry, context,
               key = absl::StrCat(network, " ", request.seed), held_before = request.held_before,
               sides = std::vector<NamedSide>{
                   {"side A", work.a, request.precision_a},
                   {"side B", work.b, request.precision_b}}]() -> absl::StatusOr<Held> {
    VOXCONV_ASSIGN_OR_RETURN(const TrustedOutput trusted,
                             OutputOfTrusted(*graph, *input, key, held_before, registry, context));
    return HoldToTrusted(*graph, sides, trusted);
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
