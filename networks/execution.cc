// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/execution.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "voxconv/core/convolution.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/networks/feature_store.h"

namespace voxconv {
namespace {

// Runs node by node. Where the run is profiled, each node's times and counters go into a report of
// its own.
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
        features_(network) {}

  absl::StatusOr<RunResult> Run(const SparseTensorView& input) {
    RecordInto(input_profile_);
    VOXCONV_RETURN_IF_ERROR(maps_.Start(input.coordinates, context_));
    // Never resized afterwards: backends may write into a profile until FlushStages.
    if (profiled_) report_.layers.resize(graph_.nodes().size() - 1);
    absl::Status status = RunNodes(input.features);
    RunResult result;
    if (status.ok()) status = GiveResults(result);
    status.Update(maps_.FinishBuilding());
    if (status.ok() && profiled_) status = FinishReport();
    if (!status.ok()) {
      // The backend still holds pointers into the report.
      context_.backend->FlushStages().IgnoreError();
      return status;
    }
    report_.parameter_bytes = network_.parameter_bytes;
    report_.peak_feature_bytes = features_.peak_bytes();
    result.report = std::move(report_);
    return result;
  }

 private:
  // The node's tensor, which the run does not need any more. On the input's voxels it has the rows
  // of the input.
  absl::StatusOr<SparseTensor> Give(int id) {
    const int coordinates = graph_.node(id).coordinates;
    Tensor tensor = features_.Release(id);
    if (coordinates != 0 || !maps_.input_order().moves_rows()) {
      return SparseTensor(coordinates < 0 ? nullptr : maps_.Coordinates(coordinates),
                          std::move(tensor));
    }
    VOXCONV_ASSIGN_OR_RETURN(Tensor given, maps_.input_order().ToGiven(tensor.view(), context_));
    return SparseTensor(maps_.input_order().given(), std::move(given));
  }

  absl::Status GiveResults(RunResult& result) {
    RecordInto(input_profile_);
    VOXCONV_ASSIGN_OR_RETURN(result.output, Give(graph_.output()));
    for (const int id : network_.kept) {
      const std::string& name = graph_.node(id).name;
      if (id == graph_.output() || result.kept.contains(name)) continue;
      VOXCONV_ASSIGN_OR_RETURN(result.kept[name], Give(id));
    }
    return absl::OkStatus();
  }

  // Of node `id`. A run that is not profiled makes no reports: what is written there is ignored.
  LayerReport& Report(int id) { return profiled_ ? report_.layers[id - 1] : ignored_; }

  void RecordInto(Profile& profile) { context_.profile = profiled_ ? &profile : nullptr; }

  absl::Status RunNodes(const ConstTensorView& features) {
    const bool asynchronous = context_.backend->asynchronous();
    if (asynchronous && !profiled_ && network_.config.parallel_maps) {
      VOXCONV_RETURN_IF_ERROR(maps_.StartBuilding(context_));
    }
    given_ = &features;
    if (asynchronous) {
      VOXCONV_RETURN_IF_ERROR(BuildMaps());  // on the input's coordinates
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
    features_.FreeAfter(id);
    maps_.Release(id);
    return BuildMaps();
  }

  // Builds the maps of the next few layers. They must be there when their layers come. More of them
  // are not queued yet, so that the device has layers to compute while the host queues maps.
  absl::Status BuildMaps() {
    constexpr size_t kLayersAhead = 4;
    for (bool built = true; built;) {
      VOXCONV_ASSIGN_OR_RETURN(built, maps_.BuildNext(next_ + kLayersAhead, report_));
    }
    return absl::OkStatus();
  }

  // Makes the caller's features the input's tensor, converted to the network's storage. Later calls
  // do nothing.
  absl::Status TakeFeatures() {
    if (given_ == nullptr) return absl::OkStatus();
    ConstTensorView given = *std::exchange(given_, nullptr);
    RecordInto(input_profile_);
    if (maps_.input_order().moves_rows()) {
      VOXCONV_ASSIGN_OR_RETURN(sorted_features_, maps_.input_order().ToSorted(given, context_));
      given = sorted_features_.view();
    }
    if (given.dtype == StorageOf(network_.config.precision)) {
      features_.Borrow(0, given);
      return absl::OkStatus();
    }
    VOXCONV_ASSIGN_OR_RETURN(const TensorView converted,
                             features_.Allocate(0, given.rows, context_));
    const StageScope scope(context_, Stage::kDense);
    return ops_.Convert(given, converted, context_);
  }

  // Makes all coordinate sets at the start, because the host waits for their sizes. Meanwhile the
  // device runs the layers that need none of them, and little else is queued before the wait.
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

  // Waits for the device.
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
      case Op::kDropout:  // changes nothing at inference
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

  // Reports what is known before the node runs.
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

  // Reports the rows of the node that has run, and the nodes whose work it did.
  void DescribeTail(int id) {
    const int64_t rows = features_.View(schedule_.tails[id].result).rows;
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

  const ConstTensorView& Input(int id, int which = 0) const {
    return features_.View(graph_.node(id).inputs[which]);
  }

  absl::StatusOr<std::shared_ptr<const PreparedMap>> Map(int id) {
    VOXCONV_RETURN_IF_ERROR(maps_.MakeOutputCoordinates(id, context_));
    VOXCONV_ASSIGN_OR_RETURN(std::shared_ptr<const PreparedMap> map,
                             maps_.Map(id, Pass::kForward, context_, Report(id), report_));
    if (!profiled_) return map;
    if (network_.config.count_pairs) {
      const ExecutionContext unprofiled{context_.backend, context_.stream, nullptr};
      VOXCONV_RETURN_IF_ERROR(maps_.EnsureCounts(id, unprofiled));
    }
    if (map->map().counts_known()) DescribeMap(id, map->map());
    return map;
  }

  absl::Status Conv(int id) {
    VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedMap> map, Map(id));
    VOXCONV_ASSIGN_OR_RETURN(const DataflowPlan* plan,
                             maps_.Plan(id, Pass::kForward, *map, context_));
    if (profiled_) Report(id).kernel = plan->kernel();
    const LayerParameters& parameters = network_.parameters[id];
    const Tail& tail = schedule_.tails[id];
    Epilogue epilogue{
        .scale = parameters.scale.data(), .shift = parameters.shift.data(), .relu = tail.relu};
    if (tail.residual >= 0) epilogue.residual = features_.View(tail.residual);
    VOXCONV_RETURN_IF_ERROR(workspace_.Grant(plan->booking(), context_));
    VOXCONV_ASSIGN_OR_RETURN(
        const TensorView output,
        features_.AllocateAt(tail.place, tail.result, map->map().num_outputs(), context_));
    return network_.layers[id].dataflow->Forward(
        *plan, *map,
        {.input = Input(id),
         .weights = parameters.weights.view(),
         .output = output,
         .epilogue = epilogue,
         .settled = maps_.IsSettled(id),
         .prepared_weights = parameters.prepared_weights.get()},
        workspace_, context_);
  }

  absl::Status ScaleShift(int id) {
    const LayerParameters& parameters = network_.parameters[id];
    const bool relu = graph_.node(id).relu || graph_.node(id).op == Op::kRelu;
    VOXCONV_ASSIGN_OR_RETURN(const TensorView y, features_.TakeOrAllocate(id, context_));
    const StageScope scope(context_, Stage::kEpilogue);
    return ops_.ScaleShift(Input(id), parameters.scale.data(), parameters.shift.data(), relu, y,
                           context_);
  }

  absl::Status Add(int id) {
    VOXCONV_ASSIGN_OR_RETURN(const TensorView y, features_.TakeOrAllocate(id, context_));
    const StageScope scope(context_, Stage::kEpilogue);
    return ops_.Add(Input(id, 0), Input(id, 1), graph_.node(id).relu, y, context_);
  }

  absl::Status Concat(int id) {
    VOXCONV_ASSIGN_OR_RETURN(const TensorView y, features_.Allocate(id, Input(id).rows, context_));
    const StageScope scope(context_, Stage::kDense);
    return ops_.Concat(Input(id, 0), Input(id, 1), y, context_);
  }

  // A linear layer, or a 1x1x1 convolution, whose map would be the identity.
  absl::Status Linear(int id, Stage stage) {
    const ConstTensorView& x = Input(id);
    const LayerParameters& parameters = network_.parameters[id];
    VOXCONV_ASSIGN_OR_RETURN(const TensorView y, features_.Allocate(id, x.rows, context_));
    CountProduct(id, x, parameters.weights.view(), y);
    {
      const StageScope scope(context_, stage);
      VOXCONV_RETURN_IF_ERROR(ops_.Linear(x, parameters.weights.view(), parameters.shift.data(),
                                          network_.config.precision, y, context_));
    }
    if (!graph_.node(id).relu) return absl::OkStatus();
    const StageScope scope(context_, Stage::kEpilogue);
    return ops_.ScaleShift(y, nullptr, nullptr, true, y, context_);
  }

  void CountProduct(int id, const ConstTensorView& x, const ConstTensorView& weights,
                    const ConstTensorView& y) {
    Counters* counters = context_.counters();
    if (counters == nullptr) return;
    // An asynchronous backend counts its launches itself.
    if (!context_.backend->asynchronous()) counters->launches += 1;
    counters->bytes_read += x.bytes() + weights.bytes();
    counters->bytes_written += y.bytes();
    if (graph_.node(id).op != Op::kConv) return;
    Report(id).pairs = x.rows;
    counters->true_pairs += x.rows;
    counters->padded_pairs += x.rows;
  }

  absl::Status Pool(int id) {
    const Node& node = graph_.node(id);
    VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedMap> map, Map(id));
    VOXCONV_ASSIGN_OR_RETURN(const TensorView y,
                             features_.Allocate(id, map->map().num_outputs(), context_));
    if (node.pool_mode == PoolMode::kMax && IsUndone(id)) {
      VOXCONV_RETURN_IF_ERROR(features_.AllocateSwitches(id, context_));
    }
    return network_.layers[id].dataflow->Pool(
        *map, {node.pool_mode, Input(id), y, features_.Switches(id)}, context_);
  }

  bool IsUndone(int pool) const {
    return std::any_of(graph_.nodes().begin(), graph_.nodes().end(), [&](const Node& node) {
      return node.op == Op::kUnpool && node.counterpart == pool;
    });
  }

  absl::Status Unpool(int id) {
    const Node& node = graph_.node(id);
    VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedMap> map, Map(id));
    VOXCONV_ASSIGN_OR_RETURN(const TensorView y,
                             features_.Allocate(id, map->map().num_inputs(), context_));
    return network_.layers[id].dataflow->Unpool(
        *map, {node.pool_mode, Input(id), y, features_.Switches(node.counterpart)}, context_);
  }

  absl::Status GlobalPool(int id) {
    const Node& node = graph_.node(id);
    const CoordinateSet& coordinates = *maps_.Coordinates(graph_.node(node.inputs[0]).coordinates);
    // Output bounds may have dropped the last samples of the batch altogether. Their rows are 0.
    const int64_t samples = maps_.Coordinates(0)->num_batches();
    VOXCONV_ASSIGN_OR_RETURN(const TensorView y, features_.Allocate(id, samples, context_));
    const StageScope scope(context_, Stage::kDense);
    return ops_.GlobalPool(coordinates, node.pool_mode, Input(id), y, context_);
  }

  const CompiledNetwork& network_;
  const NetworkGraph& graph_;
  const Schedule& schedule_;
  const bool profiled_;
  MapStore& maps_;
  Workspace& workspace_;
  ExecutionContext context_;
  TensorOps& ops_;
  FeatureStore features_;
  RunReport report_;
  LayerReport ignored_;
  const ConstTensorView* given_ = nullptr;  // the caller's features, until they are taken
  Tensor sorted_features_;                  // those in another order, if rows move
  Profile input_profile_;                   // of the conversion of the caller's features
  size_t next_ = 0;                         // in the schedule's order
};

}  // namespace

absl::StatusOr<RunResult> Execute(const CompiledNetwork& network, bool profiled,
                                  const SparseTensorView& input, MapStore& maps,
                                  Workspace& workspace, Backend& backend) {
  return Execution(network, profiled, maps, workspace, backend).Run(input);
}

}  // namespace voxconv
