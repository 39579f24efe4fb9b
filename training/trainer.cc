// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/trainer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "voxconv/networks/input_check.h"
#include "voxconv/training/forward_backward.h"

namespace voxconv {
namespace {

absl::Status CheckConfig(const TrainingConfig& config, int64_t classes) {
  const LossConfig& loss = config.loss;
  if (!loss.class_weights.empty() && static_cast<int64_t>(loss.class_weights.size()) != classes) {
    return absl::InvalidArgumentError(absl::StrCat("class_weights: ", loss.class_weights.size(),
                                                   " values; the network has ", classes,
                                                   " classes"));
  }
  for (const float weight : loss.class_weights) {
    if (std::isfinite(weight) && weight >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("class_weights: ", weight, "; each must be finite and at least 0"));
  }
  if (!(config.norm_momentum >= 0 && config.norm_momentum <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("norm_momentum: ", config.norm_momentum, "; allowed is [0, 1]"));
  }
  if (!(loss.smoothing >= 0 && loss.smoothing < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("smoothing: ", loss.smoothing, "; allowed is [0, 1)"));
  }
  if (loss.kind == LossKind::kLovasz && (loss.smoothing != 0 || !loss.class_weights.empty())) {
    return absl::InvalidArgumentError(
        loss.smoothing != 0
            ? absl::StrCat("smoothing: ", loss.smoothing, "; the loss lovasz takes 0 alone")
            : absl::StrCat("class_weights: ", loss.class_weights.size(),
                           " values; the loss lovasz takes none"));
  }
  if (config.activation_limit < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("activation_limit: ", config.activation_limit, "; it must be at least 0"));
  }
  if ((config.shared.add_moments == nullptr) != (config.shared.add_norm_gradients == nullptr)) {
    return absl::InvalidArgumentError(
        "shared: add_moments and add_norm_gradients: one is null; both or none must be");
  }
  if (config.run.fold_batch_norm) {
    return absl::InvalidArgumentError(
        "fold_batch_norm: true; a folded batch norm cannot be trained");
  }
  return absl::OkStatus();
}

bool IsFinite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

constexpr std::pair<LossKind, absl::string_view> kLosses[] = {
    {LossKind::kCrossEntropy, "cross_entropy"},
    {LossKind::kLovasz, "lovasz"},
    {LossKind::kCrossEntropyLovasz, "cross_entropy+lovasz"},
};

}  // namespace

absl::string_view ToString(LossKind kind) {
  for (const auto& [known, name] : kLosses) {
    if (known == kind) return name;
  }
  return "";
}

absl::StatusOr<LossKind> ParseLossKind(absl::string_view name) {
  std::vector<absl::string_view> names;
  for (const auto& [kind, known] : kLosses) {
    if (known == name) return kind;
    names.push_back(known);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("loss '", name, "' is unknown; allowed are ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(NetworkGraph graph,
                                                         const TrainingConfig& config,
                                                         const Registry& registry,
                                                         Backend& backend) {
  if (backend.training_ops() == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("backend ", ToString(backend.kind()), ": it cannot train"));
  }
  VOXCONV_RETURN_IF_ERROR(CheckConfig(config, graph.node(graph.output()).channels));
  RunConfig run = config.run;
  run.trains = true;
  run.profile_stages = false;
  const ExecutionContext context{&backend, &backend.main_stream(), nullptr};
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<CompiledNetwork> network,
                           CompileNetwork(std::move(graph), run, registry, context));
  std::unique_ptr<Trainer> trainer(new Trainer(std::move(network), backend, config));
  VOXCONV_ASSIGN_OR_RETURN(
      trainer->parameters_,
      ParameterStore::Create(trainer->graph(), StorageOf(run.precision), context));
  VOXCONV_ASSIGN_OR_RETURN(trainer->optimizer_,
                           Optimizer::Create(config.optimizer, trainer->parameters_, context));
  VOXCONV_ASSIGN_OR_RETURN(trainer->class_weights_,
                           CopyToBackend<float>(config.loss.class_weights, context));
  VOXCONV_ASSIGN_OR_RETURN(trainer->loss_, AllocateArray<LossResult>(1, context));
  VOXCONV_ASSIGN_OR_RETURN(trainer->told_,
                           backend.training_ops()->HostMemory(sizeof(StepTold), context));
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  return trainer;
}

ForwardBackward::Parts Trainer::StepParts(MapStore& maps, Workspace& workspace,
                                          const SharedBatch& shared) {
  return {*network_, plans_, config_.activation_limit, parameters_, maps, workspace,
          backend_,  shared};
}

absl::Status Trainer::CheckLabels(absl::Span<const int32_t> labels) const {
  for (size_t row = 0; row < labels.size(); ++row) {
    const int32_t label = labels[row];
    if (label == config_.loss.ignored || (label >= 0 && label < classes())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("labels: ", label, " in row ", row, "; allowed are 0 to ", classes() - 1,
                     ", and ", config_.loss.ignored, " for rows that are ignored"));
  }
  return absl::OkStatus();
}

absl::Status Trainer::CheckRows(absl::Span<const int32_t> labels, int64_t rows) const {
  if (static_cast<int64_t>(labels.size()) == rows) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("labels: ", labels.size(), " values; the network's output has ", rows, " rows"));
}

absl::Status Trainer::ComputeLoss(const ConstTensorView& logits, const int32_t* labels,
                                  const TensorView& gradient) {
  TrainingOps& ops = *backend_.training_ops();
  const LossConfig& loss = config_.loss;
  if (loss.kind != LossKind::kLovasz) {
    VOXCONV_RETURN_IF_ERROR(ops.CrossEntropy({.logits = logits,
                                              .labels = labels,
                                              .class_weights = class_weights_.data(),
                                              .ignored = loss.ignored,
                                              .smoothing = loss.smoothing,
                                              .gradient_scale = optimizer_.loss_scale()},
                                             gradient, loss_.data(), context()));
  }
  if (loss.kind == LossKind::kCrossEntropy) return absl::OkStatus();
  return ops.LovaszSoftmax({.logits = logits,
                            .labels = labels,
                            .ignored = loss.ignored,
                            .gradient_scale = optimizer_.loss_scale(),
                            .adds = loss.kind == LossKind::kCrossEntropyLovasz},
                           gradient, loss_.data(), context());
}

absl::StatusOr<StepResult> Trainer::Step(const SparseTensorView& input,
                                         absl::Span<const int32_t> labels, double rate) {
  VOXCONV_RETURN_IF_ERROR(Queue(input, labels, rate));
  return Finish();
}

absl::Status Trainer::CheckInput(const SparseTensorView& input) const {
  if (queued_.has_value()) {
    return absl::FailedPreconditionError("a step is queued already; Finish must come first");
  }
  VOXCONV_RETURN_IF_ERROR(CheckNetworkInput(*network_, backend_, input));
  if (input.features.rows == 0) {
    return absl::InvalidArgumentError("batch: 0 voxels; at least 1 is needed");
  }
  return absl::OkStatus();
}

absl::Status Trainer::CheckStep(const SparseTensorView& input, absl::Span<const int32_t> labels,
                                double rate) const {
  VOXCONV_RETURN_IF_ERROR(CheckInput(input));
  if (!std::isfinite(rate) || rate < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rate: ", rate, "; it must be finite and at least 0"));
  }
  // Rows of another coordinate set are known after the forward pass.
  const int set = graph().node(graph().output()).coordinates;
  if (set < 0) VOXCONV_RETURN_IF_ERROR(CheckRows(labels, input.coordinates->num_batches()));
  if (set == 0) VOXCONV_RETURN_IF_ERROR(CheckRows(labels, input.features.rows));
  return CheckLabels(labels);
}

absl::Status Trainer::Queue(const SparseTensorView& input, absl::Span<const int32_t> labels,
                            double rate) {
  VOXCONV_RETURN_IF_ERROR(CheckStep(input, labels, rate));
  // Before the layers: a copy from memory that is not page-locked may wait for what is queued.
  VOXCONV_ASSIGN_OR_RETURN(const Array<int32_t> uploaded,
                           CopyToBackend<int32_t>(labels, context()));
  const auto labels_of = [&](int64_t rows) -> absl::StatusOr<const int32_t*> {
    VOXCONV_RETURN_IF_ERROR(CheckRows(labels, rows));
    return uploaded.data();
  };
  const ForwardBackward::Randomness randomness{config_.dropout_seed, steps_};
  VOXCONV_RETURN_IF_ERROR(
      QueueWork({input, labels_of, randomness, {.value = rate}, maps_, workspace_}));
  ++steps_;
  if (!network_->config.keep_maps) maps_.Clear();
  queued_ = QueuedStep{input, randomness};
  return absl::OkStatus();
}

absl::Status Trainer::QueueWork(const Work& work) {
  const ForwardBackward::Parts parts = StepParts(work.maps, work.workspace, config_.shared);
  ForwardBackward step(parts);
  VOXCONV_RETURN_IF_ERROR(
      step.Forward(work.input, config_.norm_momentum, work.randomness, observe_));
  const ConstTensorView logits = step.output();
  VOXCONV_ASSIGN_OR_RETURN(const int32_t* labels, work.labels(logits.rows));
  VOXCONV_ASSIGN_OR_RETURN(Tensor gradient,
                           Tensor::Create(logits.rows, logits.channels, logits.dtype, context()));
  VOXCONV_RETURN_IF_ERROR(ComputeLoss(logits, labels, gradient.view()));
  VOXCONV_RETURN_IF_ERROR(step.Backward(std::move(gradient)));
  if (config_.shared.combine_gradients != nullptr) {
    VOXCONV_RETURN_IF_ERROR(config_.shared.combine_gradients(
        parameters_.all_gradients(), parameters_.trained_size(), context()));
  }
  VOXCONV_RETURN_IF_ERROR(optimizer_.Step(work.rate, parameters_, context()));
  peak_activations_ = step.peak_bytes();
  recomputed_ = step.plan().recomputed;
  map_bytes_ = work.maps.bytes();
  return absl::OkStatus();
}

absl::Status Trainer::Announce(const SparseTensorView& next) {
  VOXCONV_RETURN_IF_ERROR(CheckNetworkInput(*network_, backend_, next));
  VOXCONV_RETURN_IF_ERROR(maps_.Announce(next.coordinates, context()));
  if (!queued_.has_value()) maps_.FinishAnnounced(context());
  return absl::OkStatus();
}

absl::StatusOr<StepResult> Trainer::Finish() {
  if (!queued_.has_value()) {
    return absl::FailedPreconditionError("no step is queued; Queue must come first");
  }
  const QueuedStep step = *std::exchange(queued_, std::nullopt);
  const auto fetch = [&](const auto& array, void* to) {
    return backend_.Copy(to, MemorySpace::kHost, array.data(), array.space(), array.bytes(),
                         *context().stream);
  };
  auto* const told = static_cast<StepTold*>(told_.data());
  absl::Status status = fetch(loss_, &told->loss);
  status.Update(fetch(optimizer_.state(), &told->state));
  // What was announced was queued before these copies. The wait for its sizes may have been one for
  // them too.
  const bool waited = maps_.FinishAnnounced(context());
  if (!waited || !context().stream->IsIdle()) status.Update(context().stream->Synchronize());
  VOXCONV_RETURN_IF_ERROR(status);
  const auto& [loss, state] = *told;
  if (!std::isfinite(loss.loss)) return ExplainLoss(step.input, step.randomness, loss.loss);
  return StepResult{.loss = loss,
                    .skipped = state.skipped != 0,
                    .gradient_norm = state.norm,
                    .loss_scale = state.loss_scale};
}

absl::Status Trainer::ExplainLoss(const SparseTensorView& input,
                                  const ForwardBackward::Randomness& randomness, double loss) {
  const std::string what = absl::StrCat("loss: ", loss, "; ");
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> features, ToHost(input.features, context()));
  if (!IsFinite(features)) {
    return absl::OutOfRangeError(absl::StrCat(what, "the input has values that are not finite"));
  }
  std::string layer;
  const auto check = [&](const Node& node, const ConstTensorView& result) -> absl::Status {
    if (!layer.empty()) return absl::OkStatus();
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values, ToHost(result, context()));
    if (!IsFinite(values)) layer = node.name;
    return absl::OkStatus();
  };
  // Other processes may not be here, so their statistics cannot be asked for.
  const SharedBatch alone;
  const ForwardBackward::Parts parts = StepParts(maps_, workspace_, alone);
  ForwardBackward again(parts);
  VOXCONV_RETURN_IF_ERROR(again.Forward(input, /*momentum=*/0, randomness, check));
  VOXCONV_RETURN_IF_ERROR(context().stream->Synchronize());
  if (!network_->config.keep_maps) maps_.Clear();
  const bool shares = config_.shared.add_moments != nullptr;
  return absl::OutOfRangeError(
      layer.empty() ? absl::StrCat(what, "the logits are finite",
                                   shares ? " with the statistics of this process alone" : "")
                    : absl::StrCat(what, "the first result that is not finite is that of layer '",
                                   layer, "'"));
}

absl::StatusOr<std::vector<float>> Trainer::Gradient(absl::string_view name) {
  const std::vector<Parameter>& parameters = graph().parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    if (parameter.name != name || !parameter.trained()) continue;
    const ConstTensorView view{parameters_.gradients(static_cast<int>(i)), 1, parameter.size(),
                               DType::kF32, backend_.device()};
    return ToHost(view, context());
  }
  return absl::NotFoundError(absl::StrCat("parameter '", name, "': no trained parameter of ",
                                          graph().name(), " has this name"));
}

absl::StatusOr<NetworkGraph> Trainer::Snapshot() const {
  NetworkGraph snapshot = graph();
  VOXCONV_ASSIGN_OR_RETURN(const ParameterStore::Values values, parameters_.ToHost(context()));
  for (size_t i = 0; i < values.size(); ++i) {
    VOXCONV_RETURN_IF_ERROR(snapshot.SetParameter(graph().parameters()[i].name, values[i]));
  }
  return snapshot;
}

absl::StatusOr<Trainer::State> Trainer::Save() const {
  State state;
  VOXCONV_ASSIGN_OR_RETURN(state.parameters, parameters_.ToHost(context()));
  VOXCONV_ASSIGN_OR_RETURN(state.optimizer, optimizer_.Save(parameters_, context()));
  return state;
}

absl::Status Trainer::Restore(const State& state) {
  VOXCONV_RETURN_IF_ERROR(parameters_.FromHost(state.parameters, context()));
  const StepState& step = state.optimizer.state;
  steps_ = step.steps + step.skipped_steps;
  return optimizer_.Restore(state.optimizer, parameters_, context());
}

TrainingMemory Trainer::memory() const {
  return {.parameters = parameters_.bytes(),
          .optimizer = optimizer_.bytes(),
          .activations = peak_activations_,
          .recomputed = recomputed_,
          .maps = map_bytes_,
          .peak = backend_.PeakBytes()};
}

}  // namespace voxconv
