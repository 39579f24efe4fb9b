#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "io/voxelize.h"
#include "measure/ab/work.h"
#include "measure/network_frame.h"
#include "networks/executor.h"
#include "networks/initialize.h"
#include "networks/models.h"
#include "verify/network_bound.h"

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
  VOXCONV_ASSIGN_OR_RETURN(NetworkGraph graph, MakeModel(shape.name, {.width = shape.width}));
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
    const bool known = std::any_of(layers.begin(), layers.end(), [&](const LayerShape& other) {
      return other.geometry == layer.geometry;
    });
    if (!known) layers.push_back(layer);
  }
  return layers;
}

}  // namespace

absl::StatusOr<Work> MakeNetworkWork(const Request& request, const NetworkShape& shape,
                                     const Registry& registry, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const NetworkGraph graph, MakeGraph(shape, request.seed));
  VOXCONV_ASSIGN_OR_RETURN(SparseTensor tensor,
                           MakeSparseTensor(request.cloud, graph.in_channels(), context));
  const auto input = std::make_shared<const SparseTensor>(std::move(tensor));

  // The largest map pair by pair: an output that lacks a few pairs could hide within the bound.
  VOXCONV_RETURN_IF_ERROR(
      CheckSameMaps(request, {{.kind = ConvKind::kSubmanifold}, 16, 16}, registry, context));

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
  const size_t convolutions = graph.Convolutions().size();
  work.bound = verify::NetworkBound(graph, request.precision_a, request.precision_b);
  work.layers_to_check = TypicalLayers(graph);
  work.title =
      absl::StrCat(shape.name, ", width ", shape.width, ", ", convolutions, " convolutions, ",
                   request.cloud.size(), " voxels, ", PrecisionsOf(request));
  work.description = {{"network", shape.name},
                      {"width", shape.width},
                      {"dtype", PrecisionsOf(request)},
                      {"convolutions", convolutions},
                      {"n_in", request.cloud.size()}};
  return work;
}

}  // namespace voxconv::ab
