#include "networks/executor.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/convolution.h"
#include "core/tensor_ops.h"

namespace voxconv {
namespace {

// One run: node by node, each timed into its own report.
class Execution {
 public:
  Execution(const CompiledNetwork& network, MapStore& maps, Workspace& workspace, Backend& backend,
            const TensorView& features)
      : network_(network),
        graph_(network.graph),
        maps_(maps),
        workspace_(workspace),
        context_{&backend, &backend.main_stream(), nullptr},
        ops_(backend.tensor_ops()),
        values_(network.graph.nodes().size()) {
    values_[0].view = features;
  }

  absl::StatusOr<RunResult> Run() {
    const int size = static_cast<int>(graph_.nodes().size());
    // Never resized below: backends may write into a profile until FlushStages.
    report_.layers.resize(size - 1);
    for (int id = 1; id < size; ++id) {
      context_.profile = &Report(id).profile;
      if (absl::Status status = RunNode(id); !status.ok()) {
        // Stages in flight still point into the report.
        context_.backend->FlushStages().IgnoreError();
        return InLayer(graph_.node(id), status);
      }
      report_.peak_map_bytes = std::max(report_.peak_map_bytes, maps_.bytes());
      FreeAfter(id);
    }
    VOXCONV_RETURN_IF_ERROR(context_.backend->FlushStages());
    VOXCONV_RETURN_IF_ERROR(context_.stream->Synchronize());
    for (const LayerReport& layer : report_.layers) report_.total.Add(layer.profile);
    report_.parameter_bytes = network_.parameter_bytes;
    const int coordinates = graph_.node(graph_.output()).coordinates;
    return RunResult{std::move(*values_[graph_.output()].owned),
                     coordinates < 0 ? nullptr : maps_.Coordinates(coordinates),
                     std::move(report_)};
  }

 private:
  // A node's tensor. The input's is the caller's: `view` alone.
  struct Value {
    std::optional<Tensor> owned;
    TensorView view;
    Array<int32_t> switches;  // of max pooling that is undone later
  };

  LayerReport& Report(int id) { return report_.layers[id - 1]; }

  absl::Status RunNode(int id) {
    const Node& node = graph_.node(id);
    Describe(id);
    switch (node.op) {
      case Op::kInput:
        VOXCONV_CHECK(false);
        break;
      case Op::kConv:
        return IsPointwise(node) ? Linear(id, Stage::kGemm) : Conv(id);
      case Op::kBatchNorm:
      case Op::kRelu:
        return ScaleShift(id);
      case Op::kAdd:
        return Add(id);
      case Op::kConcat:
        return Concat(id);
      case Op::kLinear:
        return Linear(id, Stage::kDense);
      case Op::kPool:
        return Pool(id);
      case Op::kUnpool:
        return Unpool(id);
      case Op::kGlobalPool:
        return GlobalPool(id);
    }
    return absl::OkStatus();
  }

  // What is known before the node runs.
  void Describe(int id) {
    const Node& node = graph_.node(id);
    const LayerSetup& setup = network_.layers[id];
    LayerReport& report = Report(id);
    report.name = node.name;
    report.op = std::string(ToString(node.op));
    if (setup.geometry.has_value()) report.geometry = setup.geometry->ToString();
    report.c_in = graph_.InputChannels(node);
    report.c_out = node.channels;
    report.n_in = Input(id).rows;
    report.mapping = setup.specs.mapping;
    report.dataflow = setup.specs.dataflow;
    report.output_coords = setup.specs.output_coords;
  }

  const TensorView& Input(int id, int which = 0) const {
    return values_[graph_.node(id).inputs[which]].view;
  }

  // Makes `tensor` the node's own.
  void Keep(int id, Tensor tensor) {
    Value& value = values_[id];
    value.owned = std::move(tensor);
    value.view = value.owned->view();
    value.view.dtype = DType::kF32;  // tf32 is a way to compute, not to store
    Report(id).n_out = value.view.rows;
    Grow(value.view.bytes());
  }

  absl::Status Allocate(int id, int64_t rows) {
    VOXCONV_ASSIGN_OR_RETURN(Tensor tensor,
                             Tensor::Create(rows, graph_.node(id).channels, DType::kF32, context_));
    Keep(id, std::move(tensor));
    return absl::OkStatus();
  }

  // For element-wise nodes: takes over the tensor of an input that nobody reads afterwards, or
  // allocates.
  absl::Status TakeOrAllocate(int id) {
    const std::vector<int>& dying = network_.dying_tensors[id];
    for (int input : graph_.node(id).inputs) {
      Value& value = values_[input];
      if (!value.owned.has_value() || std::find(dying.begin(), dying.end(), input) == dying.end())
        continue;
      live_bytes_ -= value.view.bytes();
      Keep(id, *std::exchange(value.owned, std::nullopt));  // its view stays, for reading
      return absl::OkStatus();
    }
    return Allocate(id, Input(id).rows);
  }

  void Grow(int64_t bytes) {
    live_bytes_ += bytes;
    report_.peak_feature_bytes = std::max(report_.peak_feature_bytes, live_bytes_);
  }

  void FreeAfter(int id) {
    for (int dead : network_.dying_tensors[id]) {
      Value& value = values_[dead];
      if (value.owned.has_value()) live_bytes_ -= value.view.bytes();
      value = Value{.switches = std::move(value.switches)};
    }
    for (int dead : network_.dying_switches[id]) {
      live_bytes_ -= values_[dead].switches.bytes();
      values_[dead].switches = Array<int32_t>();
    }
    maps_.Release(id);
  }

  absl::StatusOr<std::shared_ptr<const KernelMap>> Map(int id) {
    VOXCONV_RETURN_IF_ERROR(maps_.MakeOutputCoordinates(id, context_));
    LayerReport& report = Report(id);
    VOXCONV_ASSIGN_OR_RETURN(std::shared_ptr<const KernelMap> map,
                             maps_.Map(id, context_, report, report_));
    report.pairs = map->num_pairs();
    for (int k = 0; k < map->num_offsets(); ++k) report.map_sizes.push_back(map->num_pairs(k));
    return map;
  }

  absl::Status Conv(int id) {
    VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const KernelMap> map, Map(id));
    TensorView input = Input(id), weights = network_.parameters[id].weights.view();
    input.dtype = weights.dtype = network_.config.dtype;
    VOXCONV_ASSIGN_OR_RETURN(Tensor output, RunConvolution(*network_.layers[id].dataflow, *map,
                                                           input, weights, workspace_, context_));
    Keep(id, std::move(output));
    return BiasAndRelu(id);
  }

  // In place, as an epilogue.
  absl::Status BiasAndRelu(int id) {
    const float* bias = network_.parameters[id].shift.data();
    const bool relu = graph_.node(id).relu;
    if (bias == nullptr && !relu) return absl::OkStatus();
    StageScope scope(context_, Stage::kEpilogue);
    const TensorView& y = values_[id].view;
    return ops_.ScaleShift(y, nullptr, bias, relu, y, context_);
  }

  absl::Status ScaleShift(int id) {
    const TensorView x = Input(id);
    const LayerParameters& parameters = network_.parameters[id];
    const bool relu = graph_.node(id).relu || graph_.node(id).op == Op::kRelu;
    VOXCONV_RETURN_IF_ERROR(TakeOrAllocate(id));
    StageScope scope(context_, Stage::kEpilogue);
    return ops_.ScaleShift(x, parameters.scale.data(), parameters.shift.data(), relu,
                           values_[id].view, context_);
  }

  absl::Status Add(int id) {
    const TensorView a = Input(id, 0), b = Input(id, 1);
    VOXCONV_RETURN_IF_ERROR(TakeOrAllocate(id));
    StageScope scope(context_, Stage::kEpilogue);
    return ops_.Add(a, b, graph_.node(id).relu, values_[id].view, context_);
  }

  absl::Status Concat(int id) {
    VOXCONV_RETURN_IF_ERROR(Allocate(id, Input(id).rows));
    StageScope scope(context_, Stage::kDense);
    return ops_.Concat(Input(id, 0), Input(id, 1), values_[id].view, context_);
  }

  // Linear layers and 1x1x1 convolutions, whose map would be the identity.
  absl::Status Linear(int id, Stage stage) {
    const TensorView& x = Input(id);
    const LayerParameters& parameters = network_.parameters[id];
    VOXCONV_RETURN_IF_ERROR(Allocate(id, x.rows));
    const TensorView& y = values_[id].view;
    Counters& counters = *context_.counters();
    counters.launches += 1;
    counters.bytes_read += x.bytes() + parameters.weights.view().bytes();
    counters.bytes_written += y.bytes();
    if (graph_.node(id).op == Op::kConv) {
      Report(id).dataflow = "matmul";
      Report(id).pairs = x.rows;
      counters.true_pairs += x.rows;
      counters.padded_pairs += x.rows;
    }
    {
      StageScope scope(context_, stage);
      VOXCONV_RETURN_IF_ERROR(
          ops_.Linear(x, parameters.weights.view(), parameters.shift.data(), y, context_));
    }
    if (!graph_.node(id).relu) return absl::OkStatus();
    StageScope scope(context_, Stage::kEpilogue);
    return ops_.ScaleShift(y, nullptr, nullptr, true, y, context_);
  }

  absl::Status Pool(int id) {
    const Node& node = graph_.node(id);
    VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const KernelMap> map, Map(id));
    VOXCONV_RETURN_IF_ERROR(Allocate(id, map->num_outputs()));
    Value& value = values_[id];
    if (node.pool_mode == PoolMode::kMax && IsUndone(id)) {
      VOXCONV_ASSIGN_OR_RETURN(value.switches,
                               AllocateArray<int32_t>(value.view.rows * node.channels, context_));
      Grow(value.switches.bytes());
    }
    StageScope scope(context_, Stage::kDense);
    return ops_.Pool(*map, node.pool_mode, Input(id), value.view, value.switches.data(), context_);
  }

  bool IsUndone(int pool) const {
    return std::any_of(graph_.nodes().begin(), graph_.nodes().end(), [&](const Node& node) {
      return node.op == Op::kUnpool && node.counterpart == pool;
    });
  }

  absl::Status Unpool(int id) {
    const Node& node = graph_.node(id);
    VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const KernelMap> map, Map(id));
    VOXCONV_RETURN_IF_ERROR(Allocate(id, map->num_inputs()));
    StageScope scope(context_, Stage::kDense);
    return ops_.Unpool(*map, node.pool_mode, Input(id), values_[node.counterpart].switches.data(),
                       values_[id].view, context_);
  }

  absl::Status GlobalPool(int id) {
    const Node& node = graph_.node(id);
    const CoordinateSet& coordinates = *maps_.Coordinates(graph_.node(node.inputs[0]).coordinates);
    VOXCONV_RETURN_IF_ERROR(Allocate(id, coordinates.num_batches()));
    StageScope scope(context_, Stage::kDense);
    return ops_.GlobalPool(coordinates.rows(), node.pool_mode, Input(id), values_[id].view,
                           context_);
  }

  const CompiledNetwork& network_;
  const NetworkGraph& graph_;
  MapStore& maps_;
  Workspace& workspace_;
  ExecutionContext context_;
  TensorOps& ops_;
  std::vector<Value> values_;
  RunReport report_;
  int64_t live_bytes_ = 0;
};

absl::Status CheckInput(const NetworkGraph& graph, const CoordinateSetPtr& coordinates,
                        const TensorView& features, MemorySpace space) {
  if (coordinates == nullptr) return absl::InvalidArgumentError("coordinates: none are given");
  if (coordinates->tensor_stride() != graph.coordinates()[0].tensor_stride) {
    return absl::InvalidArgumentError(
        absl::StrCat("coordinates: tensor stride ", ToString(coordinates->tensor_stride()), "; ",
                     graph.name(), " takes ", ToString(graph.coordinates()[0].tensor_stride)));
  }
  if (features.rows != coordinates->size() || features.channels != graph.in_channels()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "features: shape [", features.rows, ", ", features.channels, "]; ", graph.name(),
        " takes [", coordinates->size(), ", ", graph.in_channels(), "] for these coordinates"));
  }
  if (features.dtype != DType::kF32 || features.space != space) {
    return absl::InvalidArgumentError(
        absl::StrCat("features: dtype ", ToString(features.dtype),
                     features.space == space ? "" : " in another memory than the backend's",
                     "; networks take f32 in the backend's memory"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<NetworkRunner>> NetworkRunner::Create(NetworkGraph graph,
                                                                     const RunConfig& config,
                                                                     const Registry& registry,
                                                                     Backend& backend) {
  const ExecutionContext context{&backend, &backend.main_stream(), nullptr};
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<CompiledNetwork> network,
                           CompileNetwork(std::move(graph), config, registry, context));
  return std::unique_ptr<NetworkRunner>(new NetworkRunner(std::move(network), backend));
}

absl::StatusOr<RunResult> NetworkRunner::Run(const CoordinateSetPtr& coordinates,
                                             const TensorView& features) {
  VOXCONV_RETURN_IF_ERROR(
      CheckInput(network_->graph, coordinates, features, backend_.memory_space()));
  maps_.Start(coordinates);
  absl::StatusOr<RunResult> result =
      Execution(*network_, maps_, workspace_, backend_, features).Run();
  if (!network_->config.keep_maps) maps_.Clear();
  return result;
}

}  // namespace voxconv
