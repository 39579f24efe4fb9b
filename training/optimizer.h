// SPDX-License-Identifier: Apache-2.0
// How parameters change in a step.
#ifndef VOXCONV_TRAINING_OPTIMIZER_H_
#define VOXCONV_TRAINING_OPTIMIZER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/training_ops.h"
#include "voxconv/training/parameter_store.h"

namespace voxconv {

enum class OptimizerKind { kSgd, kAdamW };
absl::string_view ToString(OptimizerKind kind);  // "sgd", "adamw"

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kSgd;
  double momentum = 0.9;                              // SGD
  bool nesterov = false;                              // SGD
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // AdamW
  double weight_decay = 0;  // of weights; biases and the parameters of batch norms do not decay
  double max_norm = 0;      // gradients are scaled down to this norm; 0: no limit
  // The loss is multiplied by this, so that small gradients do not become 0 in f16.
  float loss_scale = 1;
  int32_t scale_growth_interval = 0;  // StepRule::growth_interval
};

// Owns the optimiser's state, in the memory of one backend, which must outlive it.
class Optimizer {
 public:
  // The state for the parameters of `store`. kInvalidArgument names a value of `config` that is not
  // allowed.
  static absl::StatusOr<Optimizer> Create(const OptimizerConfig& config,
                                          const ParameterStore& store,
                                          const ExecutionContext& context);

  // A learning rate: the value, or the place in the backend's memory where it lies when the step
  // runs. The value is then not read.
  struct Rate {
    double value = 0;
    const double* shared = nullptr;
  };
  // Steps the parameters by their gradients with the learning rate `rate`, and stores the weights
  // anew. If a gradient is not finite, this changes nothing but the loss scale. Queued on the
  // context's stream. Does not synchronise.
  absl::Status Step(const Rate& rate, ParameterStore& store, const ExecutionContext& context);

  // One value in the backend's memory: what the loss is multiplied by.
  const float* loss_scale() const { return &state_.data()->loss_scale; }
  // In the backend's memory. Valid once the queued steps are done.
  const Array<StepState>& state() const { return state_; }

  // All that later steps depend on, on the host. `second` is empty for SGD.
  struct Saved {
    StepState state;
    ParameterStore::Values first, second;
  };
  // Both synchronise the stream. The values fit the store (checked).
  absl::StatusOr<Saved> Save(const ParameterStore& store, const ExecutionContext& context) const;
  absl::Status Restore(const Saved& saved, const ParameterStore& store,
                       const ExecutionContext& context);

  const OptimizerConfig& config() const { return config_; }
  int64_t bytes() const { return first_.bytes() + second_.bytes(); }

 private:
  OptimizerConfig config_;
  StepRule rule_;
  Array<StepState> state_;  // [1]
  Array<double> norm_;      // [1]
  // [trained]: velocity of SGD, or the running means of AdamW.
  Array<float> first_, second_;
};

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_OPTIMIZER_H_
