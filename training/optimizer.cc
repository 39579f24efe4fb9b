// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/optimizer.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "voxconv/core/training_checks.h"

namespace voxconv {
namespace {

absl::Status CheckConfig(const OptimizerConfig& config) {
  // Any pointer that is not null: only the numbers are checked.
  float stands_in = 0;
  double norm = 0;
  StepState state;
  const ParameterRange range{1, &stands_in, &stands_in};
  if (!(config.loss_scale > 0) || !std::isfinite(config.loss_scale)) {
    return absl::InvalidArgumentError(absl::StrCat("optimizer: loss_scale: ", config.loss_scale,
                                                   "; it must be positive and finite"));
  }
  VOXCONV_RETURN_IF_ERROR(CheckPrepareStep(
      {.max_norm = config.max_norm, .growth_interval = config.scale_growth_interval}, &norm,
      &state));
  if (config.kind == OptimizerKind::kSgd) {
    return CheckStep(SgdStep{.momentum = config.momentum,
                             .weight_decay = config.weight_decay,
                             .velocity = &stands_in},
                     range, &state);
  }
  return CheckStep(AdamWStep{.beta1 = config.beta1,
                             .beta2 = config.beta2,
                             .epsilon = config.epsilon,
                             .weight_decay = config.weight_decay,
                             .first = &stands_in,
                             .second = &stands_in},
                   range, &state);
}

}  // namespace

absl::string_view ToString(OptimizerKind kind) {
  return kind == OptimizerKind::kSgd ? "sgd" : "adamw";
}

absl::StatusOr<Optimizer> Optimizer::Create(const OptimizerConfig& config,
                                            const ParameterStore& store,
                                            const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckConfig(config));
  Optimizer optimizer;
  optimizer.config_ = config;
  optimizer.rule_.max_norm = config.max_norm;
  optimizer.rule_.growth_interval = config.scale_growth_interval;
  const StepState state{.loss_scale = config.loss_scale};
  VOXCONV_ASSIGN_OR_RETURN(optimizer.state_,
                           CopyToBackend<StepState>(absl::MakeConstSpan(&state, 1), context));
  VOXCONV_ASSIGN_OR_RETURN(optimizer.norm_, AllocateArray<double>(1, context));
  const int64_t size = store.trained_size();
  VOXCONV_ASSIGN_OR_RETURN(optimizer.first_, AllocateArray<float>(size, context));
  const int64_t second = config.kind == OptimizerKind::kAdamW ? size : 0;
  VOXCONV_ASSIGN_OR_RETURN(optimizer.second_, AllocateArray<float>(second, context));
  for (const Array<float>* array : {&optimizer.first_, &optimizer.second_}) {
    VOXCONV_RETURN_IF_ERROR(context.backend->FillBytes(const_cast<float*>(array->data()), 0,
                                                       array->bytes(), *context.stream));
  }
  return optimizer;
}

absl::Status Optimizer::Step(const Rate& rate, ParameterStore& store,
                             const ExecutionContext& context) {
  TrainingOps& ops = *context.backend->training_ops();
  VOXCONV_RETURN_IF_ERROR(
      ops.SquaredNorm(store.all_gradients(), store.trained_size(), norm_.data(), context));
  VOXCONV_RETURN_IF_ERROR(ops.PrepareStep(rule_, norm_.data(), state_.data(), context));
  const auto step = [&](const ParameterRange& range, int64_t first, double decay) {
    if (config_.kind == OptimizerKind::kSgd) {
      return ops.Step(SgdStep{.rate = rate.value,
                              .momentum = config_.momentum,
                              .weight_decay = decay,
                              .shared_rate = rate.shared,
                              .nesterov = config_.nesterov,
                              .velocity = first_.data() + first},
                      range, state_.data(), context);
    }
    return ops.Step(AdamWStep{.rate = rate.value,
                              .beta1 = config_.beta1,
                              .beta2 = config_.beta2,
                              .epsilon = config_.epsilon,
                              .weight_decay = decay,
                              .shared_rate = rate.shared,
                              .first = first_.data() + first,
                              .second = second_.data() + first},
                    range, state_.data(), context);
  };
  const ParameterRange decayed = store.DecayedRange();
  VOXCONV_RETURN_IF_ERROR(step(decayed, 0, config_.weight_decay));
  VOXCONV_RETURN_IF_ERROR(step(store.UndecayedRange(), decayed.size, 0.0));
  return store.StoreWeights(context);
}

absl::StatusOr<Optimizer::Saved> Optimizer::Save(const ParameterStore& store,
                                                 const ExecutionContext& context) const {
  Saved saved;
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<StepState> state, CopyToHost(state_, context));
  saved.state = state[0];
  VOXCONV_ASSIGN_OR_RETURN(saved.first, store.TrainedToHost(first_, context));
  if (second_.size() == 0) return saved;
  VOXCONV_ASSIGN_OR_RETURN(saved.second, store.TrainedToHost(second_, context));
  return saved;
}

absl::Status Optimizer::Restore(const Saved& saved, const ParameterStore& store,
                                const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(context.backend->Copy(state_.data(), state_.space(), &saved.state,
                                                MemorySpace::kHost, state_.bytes(),
                                                *context.stream));
  VOXCONV_RETURN_IF_ERROR(store.TrainedFromHost(saved.first, first_, context));
  if (second_.size() == 0) return absl::OkStatus();
  return store.TrainedFromHost(saved.second, second_, context);
}

}  // namespace voxconv
