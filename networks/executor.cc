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

// One run: node by node, each timed into its own report where the network is profiled.
class Execution {
 public:
  Execution(const CompiledNetwork& network, bool profiled, MapStore& maps, Workspace& workspace,
            Backend& backend)
      : network_(network),
        graph_(network.graph),
        schedule_(network.schedule),
        profiled_(profiled),
        maps_(maps),
        workspace_(workspace),
        context_{&backend, &backend.main_stream(), nullptr},
        ops_(backend.tensor_ops()),
        values_(network.graph.nodes().size()) {}

  absl::StatusOr<RunResult> Run(const TensorView& features) {
    // Never resized afterwards: backends may write into a profile until FlushStages.
    if (profiled_) report_.layers.resize(graph_.nodes().size() - 1);
    absl::Status status = RunNodes(features);
    status.Update(maps_.FinishBuilding());
    if (status.ok() && profiled_) status = FinishReport();
    if (!status.ok()) {
      // Stages in flight still point into the report.
      context_.backend->FlushStages().IgnoreError();
      return status;
    }
    report_.parameter_bytes = network_.parameter_bytes;
    const int coordinates = graph_.node(graph_.output()).coordinates;
    return RunResult{std::move(*values_[graph_.output()].owned),
                     coordinates < 0 ? nullptr : maps_.Coordinates(coordinates),
                     std::move(report_)};
  }

 private:
  // A node's tensor. The input's is the caller's unless it is converted: `view` alone.
  struct Value {
    std::optional<Tensor> owned;
    TensorView view;
    Array<int32_t> switches;  // of max pooling that is undone later
  };

  // A report that nobody reads stands in where none is made.
  LayerReport& Report(int id) { return profiled_ ? report_.layers[id - 1] : ignored_; }

  void RecordInto(Profile& profile) { context_.profile = profiled_ ? &profile : nullptr; }

  absl::Status RunNodes(const TensorView& features) {
    const bool cuda = context_.backend->kind() == BackendKind::kCuda;
    if (cuda && !profiled_ && network_.config.parallel_maps) {
      VOXCONV_RETURN_IF_ERROR(maps_.StartBuilding(context_));
    }
    features_ = &features;
    if (cuda) {
      VOXCONV_RETURN_IF_ERROR(BuildMaps());  // of the input's level
      VOXCONV_RETURN_IF_ERROR(MakeCoordinates());
    }
    VOXCONV_RETURN_IF_ERROR(TakeFeatures());
    while (next_ < schedule_.order.size()) VOXCONV_RETURN_IF_ERROR(RunNext());
    return absl::OkStatus();
  }

  absl::Status RunNext() {
    const int id = schedule_.order[next_++];
    RecordInto(Report(id).profile);
    if (profiled_) Describe(id);
    if (absl::Status status = RunNode(id); !status.ok()) return InLayer(graph_.node(id), status);
    if (profiled_) {
      DescribeTail(id);
      report_.peak_map_bytes = std::max(report_.peak_map_bytes, maps_.bytes());
    }
    FreeAfter(id);
    return BuildMaps();
  }

  // Those of the next layers: early enough to be there when these come, and not earlier, so that
  // the device has layers to compute while the host queues maps.
  absl::Status BuildMaps() {
    constexpr size_t kLayersAhead = 4;
    for (bool built = true; built;) {
      VOXCONV_ASSIGN_OR_RETURN(built, maps_.BuildNext(next_ + kLayersAhead, report_));
    }
    return absl::OkStatus();
  }

  // In the network's dtype; once.
  absl::Status TakeFeatures() {
    if (features_ == nullptr) return absl::OkStatus();
    const TensorView& features = *std::exchange(features_, nullptr);
    RecordInto(input_profile_);
    const DType dtype = network_.config.dtype;
    Value& value = values_[0];
    value.view = features;
    value.view.dtype = dtype;
    if (SizeOf(features.dtype) == SizeOf(dtype)) return absl::OkStatus();
    VOXCONV_ASSIGN_OR_RETURN(value.owned,
                             Tensor::Create(features.rows, features.channels, dtype, context_));
    value.view = value.owned->view();
    Grow(value.view.bytes());
    StageScope scope(context_, Stage::kDense);
    return ops_.Convert(features, value.view, context_);
  }

  // All sets at the start, so that the host waits for their sizes while little else is queued: the
  // layers that need none of them.
  absl::Status MakeCoordinates() {
    for (const CoordinateChain& chain : network_.chains) {
      RecordInto(Report(chain.node).profile);
      absl::Status meanwhile;
      const absl::Status status =
          maps_.MakeChain(chain, context_, [&] { meanwhile = RunWhatIsKnown(); });
      VOXCONV_RETURN_IF_ERROR(meanwhile);
      if (!status.ok()) return InLayer(graph_.node(chain.node), status);
    }
    return absl::OkStatus();
  }

  absl::Status RunWhatIsKnown() {
    VOXCONV_RETURN_IF_ERROR(BuildMaps());
    VOXCONV_RETURN_IF_ERROR(TakeFeatures());
    while (next_ < schedule_.order.size() && maps_.HasCoordinates(schedule_.order[next_])) {
      VOXCONV_RETURN_IF_ERROR(RunNext());
    }
    return absl::OkStatus();
  }

  // What takes a wait for the device.
  absl::Status FinishReport() {
    context_.profile = nullptr;
    VOXCONV_RETURN_IF_ERROR(context_.backend->FlushStages());
    VOXCONV_RETURN_IF_ERROR(context_.stream->Synchronize());
    report_.total = input_profile_;
    for (const LayerReport& layer : report_.layers) report_.total.Add(layer.profile);
    return absl::OkStatus();
  }

  absl::Status RunNode(int id) {
    const Node& node = graph_.node(id);
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
    report.dataflow = IsPointwise(node) ? "matmul" : setup.specs.dataflow;
    report.output_coords = setup.specs.output_coords;
  }

  // The nodes that ran inside this one, and its own tensor, which nobody stored.
  void DescribeTail(int id) {
    const int64_t rows = values_[schedule_.tails[id].result].view.rows;
    Report(id).n_out = rows;
    for (size_t other = 0; other < schedule_.fused_into.size(); ++other) {
      if (schedule_.fused_into[other] != id) continue;
      const Node& node = graph_.node(static_cast<int>(other));
      LayerReport& report = Report(static_cast<int>(other));
      report.name = node.name;
      report.op = std::string(ToString(node.op));
      report.fused_into = graph_.node(id).name;
      report.c_in = graph_.InputChannels(node);
      report.c_out = node.channels;
      report.n_in = report.n_out = rows;
    }
  }

  void DescribeMap(int id, const KernelMap& map) {
    LayerReport& report = Report(id);
    report.pairs = map.num_pairs();
    for (int k = 0; k < map.num_offsets(); ++k) report.map_sizes.push_back(map.num_pairs(k));
  }

  const TensorView& Input(int id, int which = 0) const {
    return values_[graph_.node(id).inputs[which]].view;
  }

  // Makes `tensor` the node's own.
  void Keep(int id, Tensor tensor) {
    Value& value = values_[id];
    value.owned = std::move(tensor);
    value.view = value.owned->view();
    Grow(value.view.bytes());
  }

  absl::Status Allocate(int id, int64_t rows) {
    VOXCONV_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(rows, graph_.node(id).channels,
                                                           network_.config.dtype, context_));
    Keep(id, std::move(tensor));
    return absl::OkStatus();
  }

  // For element-wise nodes: takes over the tensor of an input that nobody reads afterwards, or
  // allocates.
  absl::Status TakeOrAllocate(int id) {
    const std::vector<int>& dying = schedule_.dying_tensors[id];
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
    for (int dead : schedule_.dying_tensors[id]) {
      Value& value = values_[dead];
      if (value.owned.has_value()) live_bytes_ -= value.view.bytes();
      value = Value{.switches = std::move(value.switches)};
    }
    for (int dead : schedule_.dying_switches[id]) {
      live_bytes_ -= values_[dead].switches.bytes();
      values_[dead].switches = Array<int32_t>();
    }
    maps_.Release(id);
  }

  absl::StatusOr<std::shared_ptr<const KernelMap>> Map(int id) {
    VOXCONV_RETURN_IF_ERROR(maps_.MakeOutputCoordinates(id, context_));
    VOXCONV_ASSIGN_OR_RETURN(std::shared_ptr<const KernelMap> map,
                             maps_.Map(id, context_, Report(id), report_));
    if (!profiled_) return map;
    if (network_.config.count_pairs) {
      const ExecutionContext unprofiled{context_.backend, context_.stream, nullptr};
      VOXCONV_RETURN_IF_ERROR(map->EnsureCounts(unprofiled));
    }
    if (map->counts_known()) DescribeMap(id, *map);
    return map;
  }

  absl::Status Conv(int id) {
    VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const KernelMap> map, Map(id));
    VOXCONV_ASSIGN_OR_RETURN(const DataflowPlan* plan, maps_.Plan(id, *map, context_));
    const LayerParameters& parameters = network_.parameters[id];
    const Tail& tail = schedule_.tails[id];
    Epilogue epilogue{
        .scale = parameters.scale.data(), .shift = parameters.shift.data(), .relu = tail.relu};
    if (tail.residual >= 0) epilogue.residual = values_[tail.residual].view;
    VOXCONV_ASSIGN_OR_RETURN(
        Tensor output, RunPlannedConvolution(*network_.layers[id].dataflow, *plan, *map, Input(id),
                                             parameters.weights.view(), workspace_, context_,
                                             epilogue, maps_.IsSettled(id)));
    Keep(tail.result, std::move(output));
    return absl::OkStatus();
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
    CountProduct(id, x, parameters.weights.view(), y);
    {
      StageScope scope(context_, stage);
      VOXCONV_RETURN_IF_ERROR(
          ops_.Linear(x, parameters.weights.view(), parameters.shift.data(), y, context_));
    }
    if (!graph_.node(id).relu) return absl::OkStatus();
    StageScope scope(context_, Stage::kEpilogue);
    return ops_.ScaleShift(y, nullptr, nullptr, true, y, context_);
  }

  void CountProduct(int id, const TensorView& x, const TensorView& weights, const TensorView& y) {
    Counters* counters = context_.counters();
    if (counters == nullptr) return;
    // On a device, what launches counts itself.
    if (context_.backend->kind() == BackendKind::kCpu) counters->launches += 1;
    counters->bytes_read += x.bytes() + weights.bytes();
    counters->bytes_written += y.bytes();
    if (graph_.node(id).op != Op::kConv) return;
    Report(id).pairs = x.rows;
    counters->true_pairs += x.rows;
    counters->padded_pairs += x.rows;
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
  const Schedule& schedule_;
  const bool profiled_;
  MapStore& maps_;
  Workspace& workspace_;
  ExecutionContext context_;
  TensorOps& ops_;
  std::vector<Value> values_;
  RunReport report_;
  LayerReport ignored_;
  const TensorView* features_ = nullptr;  // the caller's, until they are taken
  Profile input_profile_;                 // of what is done to the features before the first layer
  size_t next_ = 0;                       // in the schedule's order
  int64_t live_bytes_ = 0;
};

absl::Status CheckInput(const NetworkGraph& graph, const CoordinateSetPtr& coordinates,
                        const TensorView& features, DType dtype, MemorySpace space) {
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
  const bool fits = features.dtype == DType::kF32 || features.dtype == dtype;
  if (!fits || features.space != space) {
    return absl::InvalidArgumentError(absl::StrCat(
        "features: dtype ", ToString(features.dtype),
        features.space == space ? "" : " in another memory than the backend's",
        "; the network takes ", dtype == DType::kF32 ? "" : absl::StrCat(ToString(dtype), " or "),
        "f32 in the backend's memory"));
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
  VOXCONV_RETURN_IF_ERROR(CheckInput(network_->graph, coordinates, features, network_->config.dtype,
                                     backend_.memory_space()));
  maps_.Start(coordinates);
  absl::StatusOr<RunResult> result =
      Execution(*network_, network_->config.profile_stages, maps_, workspace_, backend_)
          .Run(features);
  // After an error, maps may be there whose work was never done.
  if (!network_->config.keep_maps || !result.ok()) maps_.Clear();
  return result;
}

absl::StatusOr<std::unique_ptr<RecordedFrame>> NetworkRunner::Record(
    const CoordinateSetPtr& coordinates, const TensorView& features) {
  if (!network_->config.keep_maps) {
    return absl::FailedPreconditionError(
        "a frame that builds its maps anew cannot be recorded, as their sizes are known only while "
        "it runs; keep_maps is needed");
  }
  VOXCONV_RETURN_IF_ERROR(CheckInput(network_->graph, coordinates, features, network_->config.dtype,
                                     backend_.memory_space()));
  std::unique_ptr<RecordedFrame> frame(new RecordedFrame(*network_));
  frame->maps_.Start(coordinates);
  const auto run = [&](const ExecutionContext&) -> absl::Status {
    Execution execution(*network_, /*profiled=*/false, frame->maps_, frame->workspace_, backend_);
    VOXCONV_ASSIGN_OR_RETURN(frame->result_, execution.Run(features));
    return absl::OkStatus();
  };
  const ExecutionContext context{&backend_, &backend_.main_stream(), nullptr};
  // Makes the maps and plans, and the workspace as large as it gets.
  VOXCONV_RETURN_IF_ERROR(run(context));
  frame->result_ = RunResult();
  VOXCONV_ASSIGN_OR_RETURN(frame->recording_, backend_.Record(context, run));
  return frame;
}

}  // namespace voxconv
