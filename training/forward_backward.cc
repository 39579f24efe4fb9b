// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/forward_backward.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/training_step.h"

namespace voxconv {
namespace {

// The five arrays of a batch norm's statistics.
enum NormArray { kMean, kDeviation, kInverseStd, kScale, kShift, kNormArrays };

float* ArrayOf(Array<float>& statistics, NormArray which) {
  return statistics.data() + which * (statistics.size() / kNormArrays);
}

int64_t DropoutsBefore(const NetworkGraph& graph, int id) {
  return std::count_if(graph.nodes().begin(), graph.nodes().begin() + id,
                       [](const Node& node) { return node.op == Op::kDropout; });
}

}  // namespace

ForwardBackward::ForwardBackward(const Parts& parts)
    : network_(parts.network),
      graph_(parts.network.graph),
      plans_(parts.plans),
      activation_limit_(parts.activation_limit),
      plan_(&parts.plans.front()),
      parameters_(parts.parameters),
      maps_(parts.maps),
      workspace_(parts.workspace),
      context_{&parts.backend, &parts.backend.main_stream(), nullptr},
      ops_(parts.backend.tensor_ops()),
      training_(*parts.backend.training_ops()),
      storage_(StorageOf(parts.network.config.precision)),
      shared_(parts.shared),
      values_(graph_.nodes().size()),
      gradients_(graph_.nodes().size()) {}

CoordinateSetPtr ForwardBackward::output_coordinates() const {
  const int id = graph_.node(graph_.output()).coordinates;
  return id < 0 ? nullptr : maps_.Coordinates(id);
}

void ForwardBackward::Grow(int64_t bytes) {
  live_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
}

void ForwardBackward::FreeAfter(const StepAction& action) {
  for (const int id : action.dying_tensors) {
    Grow(-values_[id].owned.view().bytes());
    values_[id].owned = Tensor();
    values_[id].view = {};
  }
  for (const int id : action.dying_switches) {
    Grow(-values_[id].switches.bytes());
    values_[id].switches = Array<int32_t>();
  }
}

absl::StatusOr<Tensor> ForwardBackward::Make(int64_t rows, int64_t channels) {
  VOXCONV_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(rows, channels, storage_, context_));
  Grow(tensor.view().bytes());
  return tensor;
}

absl::StatusOr<TensorView> ForwardBackward::MakeResult(int id, int64_t rows) {
  Value& value = values_[id];
  VOXCONV_ASSIGN_OR_RETURN(value.owned, Make(rows, node(id).channels));
  value.view = value.owned.view();
  return value.owned.view();
}

absl::StatusOr<ForwardBackward::Gradient> ForwardBackward::MakeGradient(int64_t rows,
                                                                        int64_t channels) {
  VOXCONV_ASSIGN_OR_RETURN(Tensor tensor, Make(rows, channels));
  return Counted(std::move(tensor));
}

ForwardBackward::Gradient ForwardBackward::Counted(Tensor tensor) {
  return Gradient(new Tensor(std::move(tensor)), [this](Tensor* last) {
    Grow(-last->view().bytes());
    delete last;
  });
}

absl::StatusOr<ForwardBackward::Gradient> ForwardBackward::Writable(const Gradient& gradient) {
  if (gradient.use_count() == 1) return gradient;
  return MakeGradient(gradient->rows(), gradient->channels());
}

absl::Status ForwardBackward::Contribute(int id, int which, Gradient gradient) {
  Gradient& sum = gradients_[node(id).inputs[which]];
  if (sum == nullptr) {
    sum = std::move(gradient);
    return absl::OkStatus();
  }
  // The order of the nodes fixes the order of the additions.
  VOXCONV_ASSIGN_OR_RETURN(Gradient total, Writable(sum));
  VOXCONV_RETURN_IF_ERROR(
      ops_.Add(sum->view(), gradient->view(), /*relu=*/false, total->view(), context_));
  sum = std::move(total);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const PreparedMap>> ForwardBackward::Map(int id, Pass pass) {
  VOXCONV_RETURN_IF_ERROR(maps_.MakeOutputCoordinates(id, context_));
  return maps_.Map(id, pass, context_, ignored_layer_, ignored_report_);
}

absl::Status ForwardBackward::Forward(const SparseTensorView& input, double momentum,
                                      const Randomness& randomness, const Observer& observe) {
  momentum_ = momentum;
  randomness_ = randomness;
  observe_ = observe == nullptr ? nullptr : &observe;
  VOXCONV_RETURN_IF_ERROR(maps_.Start(input.coordinates, context_));
  if (context_.backend->asynchronous() && network_.config.parallel_maps) {
    VOXCONV_RETURN_IF_ERROR(maps_.StartBuilding(context_));
  }
  absl::Status status = ForwardLayers(input);
  status.Update(maps_.FinishBuilding());
  return status;
}

absl::Status ForwardBackward::ForwardLayers(const SparseTensorView& input) {
  VOXCONV_RETURN_IF_ERROR(BuildMaps());  // on the input's coordinates
  values_[0].view = input.features;
  if (input.features.dtype != storage_) {
    VOXCONV_ASSIGN_OR_RETURN(const TensorView converted, MakeResult(0, input.features.rows));
    VOXCONV_RETURN_IF_ERROR(ops_.Convert(input.features, converted, context_));
  }
  // Which plan is taken depends on the sizes of all coordinate sets.
  VOXCONV_RETURN_IF_ERROR(MakeCoordinates(/*run_layers=*/activation_limit_ == 0));
  if (activation_limit_ > 0) VOXCONV_RETURN_IF_ERROR(ChoosePlan(input));
  return RunLayers(/*known_only=*/false);
}

absl::Status ForwardBackward::MakeCoordinates(bool run_layers) {
  for (const CoordinateChain& chain : network_.chains) {
    absl::Status meanwhile;
    const absl::Status status = maps_.MakeChain(chain, context_, [&] {
      if (run_layers) meanwhile = RunLayers(/*known_only=*/true);
    });
    VOXCONV_RETURN_IF_ERROR(meanwhile);
    VOXCONV_RETURN_IF_ERROR(InLayer(node(chain.node), status));
  }
  return absl::OkStatus();
}

absl::Status ForwardBackward::RunLayers(bool known_only) {
  for (; next_ < plan_->actions.size(); ++next_) {
    const StepAction& action = plan_->actions[next_];
    if (action.kind != StepAction::Kind::kForward) break;
    if (known_only && !maps_.HasCoordinates(action.node)) break;
    VOXCONV_RETURN_IF_ERROR(InLayer(node(action.node), ForwardNode(action.node)));
    if (observe_ != nullptr) {
      VOXCONV_RETURN_IF_ERROR((*observe_)(node(action.node), values_[action.node].view));
    }
    FreeAfter(action);
    VOXCONV_RETURN_IF_ERROR(BuildMaps());
  }
  return absl::OkStatus();
}

absl::Status ForwardBackward::BuildMaps() {
  // Layers run in the order of the graph. More maps are not queued yet, so that the device has
  // layers to compute while the host queues maps.
  constexpr size_t kLayersAhead = 4;
  for (bool built = true; built;) {
    VOXCONV_ASSIGN_OR_RETURN(built, maps_.BuildNext(next_ + kLayersAhead, ignored_report_));
  }
  return absl::OkStatus();
}

absl::Status ForwardBackward::ChoosePlan(const SparseTensorView& input) {
  const auto nodes = static_cast<int>(graph_.nodes().size());
  std::vector<NodeBytes> bytes(nodes);
  for (int id = 0; id < nodes; ++id) {
    if (UsesKernelMap(node(id))) {
      VOXCONV_RETURN_IF_ERROR(InLayer(node(id), maps_.MakeOutputCoordinates(id, context_)));
    }
    const int set = node(id).coordinates;
    const int64_t rows =
        set < 0 ? input.coordinates->num_batches() : maps_.Coordinates(set)->size();
    const int64_t elements = rows * node(id).channels;
    bytes[id].tensor = elements * SizeOf(storage_);
    if (node(id).op == Op::kPool && node(id).pool_mode == PoolMode::kMax) {
      bytes[id].switches = elements * static_cast<int64_t>(sizeof(int32_t));
    }
  }
  if (input.features.dtype == storage_) bytes[0].tensor = 0;  // the caller's
  int64_t least = INT64_MAX;
  for (const StepPlan& plan : plans_) {
    const int64_t peak = PeakBytes(graph_, plan, bytes);
    least = std::min(least, peak);
    if (peak > activation_limit_) continue;
    plan_ = &plan;
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat("activation_limit: ", activation_limit_,
                                                   " bytes; this batch needs at least ", least,
                                                   ", with what is computed a second time"));
}

absl::Status ForwardBackward::ForwardNode(int id) {
  switch (node(id).op) {
    case Op::kInput:
      break;
    case Op::kConv:
      return IsPointwise(node(id)) ? ForwardLinear(id) : ForwardConv(id);
    case Op::kLinear:
      return ForwardLinear(id);
    case Op::kBatchNorm:
      return ForwardBatchNorm(id);
    case Op::kRelu: {
      VOXCONV_ASSIGN_OR_RETURN(const TensorView y, MakeResult(id, Input(id).rows));
      return ops_.ScaleShift(Input(id), nullptr, nullptr, /*relu=*/true, y, context_);
    }
    case Op::kAdd: {
      VOXCONV_ASSIGN_OR_RETURN(const TensorView y, MakeResult(id, Input(id).rows));
      return ops_.Add(Input(id, 0), Input(id, 1), node(id).relu, y, context_);
    }
    case Op::kConcat: {
      VOXCONV_ASSIGN_OR_RETURN(const TensorView y, MakeResult(id, Input(id).rows));
      return ops_.Concat(Input(id, 0), Input(id, 1), y, context_);
    }
    case Op::kPool:
      return ForwardPool(id);
    case Op::kUnpool:
      return ForwardUnpool(id);
    case Op::kGlobalPool:
      return ForwardGlobalPool(id);
    case Op::kDropout: {
      VOXCONV_ASSIGN_OR_RETURN(const TensorView y, MakeResult(id, Input(id).rows));
      return Dropout(id, Input(id), y);
    }
  }
  return absl::OkStatus();
}

absl::Status ForwardBackward::ForwardConv(int id) {
  VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedMap> map, Map(id, Pass::kForward));
  VOXCONV_ASSIGN_OR_RETURN(const DataflowPlan* plan,
                           maps_.Plan(id, Pass::kForward, *map, context_));
  VOXCONV_ASSIGN_OR_RETURN(const TensorView y, MakeResult(id, map->map().num_outputs()));
  VOXCONV_RETURN_IF_ERROR(workspace_.Grant(plan->booking(), context_));
  const std::vector<int>& parameters = node(id).parameters;
  ForwardArgs args{.input = Input(id), .weights = parameters_.Weights(parameters[0]), .output = y};
  if (parameters.size() > 1) args.epilogue.shift = parameters_.values(parameters[1]);
  args.epilogue.relu = node(id).relu;
  return network_.layers[id].dataflow->Forward(*plan, *map, args, workspace_, context_);
}

// Also of a 1x1x1 convolution, whose map would be the identity.
absl::Status ForwardBackward::ForwardLinear(int id) {
  VOXCONV_ASSIGN_OR_RETURN(const TensorView y, MakeResult(id, Input(id).rows));
  const std::vector<int>& parameters = node(id).parameters;
  const float* bias = parameters.size() > 1 ? parameters_.values(parameters[1]) : nullptr;
  VOXCONV_RETURN_IF_ERROR(ops_.Linear(Input(id), parameters_.Weights(parameters[0]), bias,
                                      network_.config.precision, y, context_));
  if (!node(id).relu) return absl::OkStatus();
  return ops_.ScaleShift(y, nullptr, nullptr, /*relu=*/true, y, context_);
}

absl::Status ForwardBackward::ForwardBatchNorm(int id) {
  const ConstTensorView& x = Input(id);
  const std::vector<int>& parameters = node(id).parameters;  // gamma, beta, mean, variance
  Array<float>& statistics = values_[id].statistics;
  if (!again_) {
    VOXCONV_ASSIGN_OR_RETURN(statistics, AllocateArray<float>(kNormArrays * x.channels, context_));
    VOXCONV_RETURN_IF_ERROR(training_.ChannelMoments(x, ArrayOf(statistics, kMean),
                                                     ArrayOf(statistics, kDeviation), context_));
    if (shared_.add_moments != nullptr) {
      VOXCONV_RETURN_IF_ERROR(ShareMoments(x.rows, values_[id]));
    }
    VOXCONV_RETURN_IF_ERROR(
        training_.BatchNormScale({.channels = x.channels,
                                  .rows = x.rows,
                                  .shared_rows = values_[id].shared_sums.data(),
                                  .mean = ArrayOf(statistics, kMean),
                                  .deviation = ArrayOf(statistics, kDeviation),
                                  .gamma = parameters_.values(parameters[0]),
                                  .beta = parameters_.values(parameters[1]),
                                  .epsilon = kBatchNormEpsilon,
                                  .momentum = momentum_,
                                  .inverse_std = ArrayOf(statistics, kInverseStd),
                                  .scale = ArrayOf(statistics, kScale),
                                  .shift = ArrayOf(statistics, kShift),
                                  .running_mean = parameters_.values(parameters[2]),
                                  .running_variance = parameters_.values(parameters[3])},
                                 context_));
  }
  VOXCONV_ASSIGN_OR_RETURN(const TensorView y, MakeResult(id, x.rows));
  return ops_.ScaleShift(x, ArrayOf(statistics, kScale), ArrayOf(statistics, kShift), node(id).relu,
                         y, context_);
}

absl::Status ForwardBackward::ShareMoments(int64_t rows, Value& value) {
  const int64_t channels = value.statistics.size() / kNormArrays;
  float* mean = ArrayOf(value.statistics, kMean);
  float* deviation = ArrayOf(value.statistics, kDeviation);
  VOXCONV_ASSIGN_OR_RETURN(value.shared_sums, AllocateArray<double>(1 + 2 * channels, context_));
  double* sums = value.shared_sums.data();
  VOXCONV_RETURN_IF_ERROR(training_.SumsOfMoments(mean, deviation, rows, channels, sums, context_));
  VOXCONV_RETURN_IF_ERROR(shared_.add_moments(sums, value.shared_sums.size(), context_));
  return training_.MomentsOfSums(sums, channels, mean, deviation, context_);
}

absl::Status ForwardBackward::ForwardPool(int id) {
  VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedMap> map, Map(id, Pass::kForward));
  VOXCONV_ASSIGN_OR_RETURN(const TensorView y, MakeResult(id, map->map().num_outputs()));
  Array<int32_t>& switches = values_[id].switches;
  if (node(id).pool_mode == PoolMode::kMax && !again_) {
    VOXCONV_ASSIGN_OR_RETURN(switches, AllocateArray<int32_t>(y.rows * y.channels, context_));
    Grow(switches.bytes());
  }
  return network_.layers[id].dataflow->Pool(
      *map, {node(id).pool_mode, Input(id), y, switches.data()}, context_);
}

absl::Status ForwardBackward::ForwardUnpool(int id) {
  VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedMap> map, Map(id, Pass::kForward));
  VOXCONV_ASSIGN_OR_RETURN(const TensorView y, MakeResult(id, map->map().num_inputs()));
  const int32_t* switches = values_[node(id).counterpart].switches.data();
  return network_.layers[id].dataflow->Unpool(*map, {node(id).pool_mode, Input(id), y, switches},
                                              context_);
}

absl::Status ForwardBackward::ForwardGlobalPool(int id) {
  const CoordinateSet& coordinates = *maps_.Coordinates(node(node(id).inputs[0]).coordinates);
  // Output bounds may have dropped the last samples of the batch altogether. Their rows are 0.
  VOXCONV_ASSIGN_OR_RETURN(const TensorView y, MakeResult(id, maps_.Coordinates(0)->num_batches()));
  return ops_.GlobalPool(coordinates, node(id).pool_mode, Input(id), y, context_);
}

// Of the values, and of their gradient: the same elements stay.
absl::Status ForwardBackward::Dropout(int id, const ConstTensorView& x, const TensorView& y) {
  DropoutKey key(DropoutSeed(randomness_.seed, randomness_.step, id));
  if (randomness_.shared_seeds != nullptr) {
    key.shared_seed = randomness_.shared_seeds + DropoutsBefore(graph_, id);
  }
  return training_.Dropout(x, node(id).dropout_rate, key, y, context_);
}

std::vector<uint64_t> ForwardBackward::DropoutSeeds(const NetworkGraph& graph,
                                                    const Randomness& randomness) {
  std::vector<uint64_t> seeds;
  for (int id = 0; id < static_cast<int>(graph.nodes().size()); ++id) {
    if (graph.node(id).op != Op::kDropout) continue;
    seeds.push_back(DropoutSeed(randomness.seed, randomness.step, id));
  }
  return seeds;
}

absl::Status ForwardBackward::Backward(Tensor gradient) {
  VOXCONV_RETURN_IF_ERROR(parameters_.ClearGradients(context_));
  Grow(gradient.view().bytes());
  gradients_[graph_.output()] = Counted(std::move(gradient));
  again_ = true;
  for (const StepAction& action : plan_->actions) {
    if (action.kind == StepAction::Kind::kForward) continue;
    VOXCONV_RETURN_IF_ERROR(InLayer(node(action.node), Run(action)));
    FreeAfter(action);
  }
  return absl::OkStatus();
}

absl::Status ForwardBackward::Run(const StepAction& action) {
  if (action.kind == StepAction::Kind::kRecompute) return ForwardNode(action.node);
  Gradient dy = std::exchange(gradients_[action.node], nullptr);
  if (dy == nullptr) return absl::OkStatus();  // no reader of the tensor has a gradient for it
  return BackwardNode(action.node, std::move(dy));
}

absl::Status ForwardBackward::BackwardNode(int id, Gradient dy) {
  const Op op = node(id).op;
  if (MasksGradient(node(id)) && op != Op::kBatchNorm) {  // a batch norm masks it as it reads it
    VOXCONV_ASSIGN_OR_RETURN(Gradient masked, Writable(dy));
    VOXCONV_RETURN_IF_ERROR(
        training_.ReluGrad(values_[id].view, dy->view(), masked->view(), context_));
    dy = std::move(masked);
  }
  switch (op) {
    case Op::kInput:
      break;
    case Op::kConv:
      return IsPointwise(node(id)) ? BackwardLinear(id, dy) : BackwardConv(id, dy);
    case Op::kLinear:
      return BackwardLinear(id, dy);
    case Op::kBatchNorm:
      return BackwardBatchNorm(id, dy);
    case Op::kRelu:
      return Contribute(id, 0, std::move(dy));
    case Op::kAdd:
      if (NeedsInputGradient(id, 0)) VOXCONV_RETURN_IF_ERROR(Contribute(id, 0, dy));
      if (NeedsInputGradient(id, 1)) return Contribute(id, 1, std::move(dy));
      break;
    case Op::kConcat:
      return BackwardConcat(id, dy);
    case Op::kPool:
      return BackwardPool(id, dy);
    case Op::kUnpool:
      return BackwardUnpool(id, dy);
    case Op::kGlobalPool:
      return BackwardGlobalPool(id, dy);
    case Op::kDropout: {
      VOXCONV_ASSIGN_OR_RETURN(Gradient dx, Writable(dy));
      VOXCONV_RETURN_IF_ERROR(Dropout(id, dy->view(), dx->view()));
      return Contribute(id, 0, std::move(dx));
    }
  }
  return absl::OkStatus();
}

absl::Status ForwardBackward::BackwardConv(int id, const Gradient& dy) {
  const Dataflow& dataflow = *network_.layers[id].dataflow;
  const std::vector<int>& parameters = node(id).parameters;
  if (parameters.size() > 1) {
    VOXCONV_RETURN_IF_ERROR(
        training_.ColumnSums(dy->view(), parameters_.gradients(parameters[1]), context_));
  }
  const auto planned = [&](Pass pass, const auto& run) -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedMap> map, Map(id, pass));
    VOXCONV_ASSIGN_OR_RETURN(const DataflowPlan* plan, maps_.Plan(id, pass, *map, context_));
    VOXCONV_RETURN_IF_ERROR(workspace_.Grant(plan->booking(), context_));
    return run(*plan, *map);
  };
  VOXCONV_RETURN_IF_ERROR(
      planned(Pass::kWeightGrad, [&](const DataflowPlan& plan, const PreparedMap& map) {
        return dataflow.WeightGrad(plan, map,
                                   {.input = Input(id),
                                    .output_grad = dy->view(),
                                    .weights_grad = parameters_.WeightGradients(parameters[0])},
                                   workspace_, context_);
      }));
  if (!NeedsInputGradient(id)) return absl::OkStatus();
  VOXCONV_ASSIGN_OR_RETURN(Gradient dx, MakeGradient(Input(id).rows, Input(id).channels));
  VOXCONV_RETURN_IF_ERROR(
      planned(Pass::kInputGrad, [&](const DataflowPlan& plan, const PreparedMap& map) {
        return dataflow.InputGrad(plan, map,
                                  {.output_grad = dy->view(),
                                   .weights = parameters_.Weights(parameters[0]),
                                   .input_grad = dx->view()},
                                  workspace_, context_);
      }));
  return Contribute(id, 0, std::move(dx));
}

absl::Status ForwardBackward::BackwardLinear(int id, const Gradient& dy) {
  const std::vector<int>& parameters = node(id).parameters;
  const Precision precision = network_.config.precision;
  if (parameters.size() > 1) {
    VOXCONV_RETURN_IF_ERROR(
        training_.ColumnSums(dy->view(), parameters_.gradients(parameters[1]), context_));
  }
  VOXCONV_RETURN_IF_ERROR(training_.LinearWeightGradient(
      Input(id), dy->view(), precision, parameters_.WeightGradients(parameters[0]), context_));
  if (!NeedsInputGradient(id)) return absl::OkStatus();
  const ConstTensorView weights = parameters_.Weights(parameters[0]);
  VOXCONV_ASSIGN_OR_RETURN(const Tensor transposed,
                           Tensor::Create(weights.channels, weights.rows, weights.dtype, context_));
  VOXCONV_RETURN_IF_ERROR(ops_.TransposeWeights(weights, /*num_offsets=*/1, /*reversed=*/false,
                                                transposed.view(), context_));
  VOXCONV_ASSIGN_OR_RETURN(Gradient dx, MakeGradient(Input(id).rows, Input(id).channels));
  VOXCONV_RETURN_IF_ERROR(
      ops_.Linear(dy->view(), transposed.view(), nullptr, precision, dx->view(), context_));
  return Contribute(id, 0, std::move(dx));
}

absl::Status ForwardBackward::BackwardBatchNorm(int id, const Gradient& dy) {
  const std::vector<int>& parameters = node(id).parameters;
  Array<float>& statistics = values_[id].statistics;
  BatchNormGradArgs args{.x = Input(id),
                         .dy = dy->view(),
                         .y = {},
                         .mean = ArrayOf(statistics, kMean),
                         .inverse_std = ArrayOf(statistics, kInverseStd),
                         .gamma = parameters_.values(parameters[0]),
                         .sum_dy = parameters_.gradients(parameters[1]),
                         .sum_dy_x = parameters_.gradients(parameters[0]),
                         .rows = Input(id).rows};
  if (node(id).relu) args.y = values_[id].view;
  VOXCONV_RETURN_IF_ERROR(training_.BatchNormGradSums(args, context_));
  if (!NeedsInputGradient(id)) return absl::OkStatus();
  Array<float> shared_sums;
  if (shared_.add_norm_gradients != nullptr) {
    VOXCONV_RETURN_IF_ERROR(ShareGradientSums(id, shared_sums, args));
  }
  VOXCONV_ASSIGN_OR_RETURN(Gradient dx, Writable(dy));
  VOXCONV_RETURN_IF_ERROR(training_.BatchNormInputGrad(args, dx->view(), context_));
  statistics = Array<float>();
  return Contribute(id, 0, std::move(dx));
}

// The parameters' gradients stay those of this process.
absl::Status ForwardBackward::ShareGradientSums(int id, Array<float>& sums,
                                                BatchNormGradArgs& args) {
  const int64_t channels = args.x.channels;
  VOXCONV_ASSIGN_OR_RETURN(sums, AllocateArray<float>(2 * channels, context_));
  float* place = sums.data();
  for (float** const own : {&args.sum_dy, &args.sum_dy_x}) {
    VOXCONV_RETURN_IF_ERROR(context_.backend->Copy(place, sums.space(), *own, sums.space(),
                                                   channels * static_cast<int64_t>(sizeof(float)),
                                                   *context_.stream));
    *own = place;
    place += channels;
  }
  args.shared_rows = values_[id].shared_sums.data();
  return shared_.add_norm_gradients(sums.data(), sums.size(), context_);
}

absl::Status ForwardBackward::BackwardConcat(int id, const Gradient& dy) {
  const int64_t channels = node(node(id).inputs[0]).channels;
  VOXCONV_ASSIGN_OR_RETURN(Gradient a, MakeGradient(dy->rows(), channels));
  VOXCONV_ASSIGN_OR_RETURN(Gradient b, MakeGradient(dy->rows(), dy->channels() - channels));
  VOXCONV_RETURN_IF_ERROR(training_.Split(dy->view(), a->view(), b->view(), context_));
  if (NeedsInputGradient(id, 0)) VOXCONV_RETURN_IF_ERROR(Contribute(id, 0, std::move(a)));
  if (NeedsInputGradient(id, 1)) return Contribute(id, 1, std::move(b));
  return absl::OkStatus();
}

// The gradient of a pooling is the unpooling by the same map and mode, and the other way round.
absl::Status ForwardBackward::BackwardPool(int id, const Gradient& dy) {
  VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedMap> map, Map(id, Pass::kInputGrad));
  VOXCONV_ASSIGN_OR_RETURN(Gradient dx, MakeGradient(map->map().num_inputs(), dy->channels()));
  const int32_t* switches = values_[id].switches.data();
  VOXCONV_RETURN_IF_ERROR(network_.layers[id].dataflow->Unpool(
      *map, {node(id).pool_mode, dy->view(), dx->view(), switches}, context_));
  return Contribute(id, 0, std::move(dx));
}

absl::Status ForwardBackward::BackwardUnpool(int id, const Gradient& dy) {
  VOXCONV_ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedMap> map, Map(id, Pass::kInputGrad));
  VOXCONV_ASSIGN_OR_RETURN(Gradient dx, MakeGradient(map->map().num_outputs(), dy->channels()));
  const int32_t* switches = values_[node(id).counterpart].switches.data();
  VOXCONV_RETURN_IF_ERROR(node(id).pool_mode == PoolMode::kMax
                              ? training_.Select(dy->view(), switches, dx->view(), context_)
                              : network_.layers[id].dataflow->Pool(
                                    *map, {node(id).pool_mode, dy->view(), dx->view()}, context_));
  return Contribute(id, 0, std::move(dx));
}

absl::Status ForwardBackward::BackwardGlobalPool(int id, const Gradient& dy) {
  const CoordinateSet& coordinates = *maps_.Coordinates(node(node(id).inputs[0]).coordinates);
  VOXCONV_ASSIGN_OR_RETURN(Gradient dx, MakeGradient(coordinates.size(), dy->channels()));
  // Only max pooling reads x and y; the other modes have given them up, and take stand-ins.
  const bool max = node(id).pool_mode == PoolMode::kMax;
  VOXCONV_RETURN_IF_ERROR(training_.GlobalPoolGrad(
      coordinates.rows(), node(id).pool_mode, max ? Input(id) : ConstTensorView(dx->view()),
      max ? values_[id].view : ConstTensorView(dy->view()), dy->view(), dx->view(), context_));
  return Contribute(id, 0, std::move(dx));
}

}  // namespace voxconv
