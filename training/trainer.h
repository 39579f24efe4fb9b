// SPDX-License-Identifier: Apache-2.0
// Trains a network, step by step.
#ifndef VOXCONV_TRAINING_TRAINER_H_
#define VOXCONV_TRAINING_TRAINER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/registry.h"
#include "voxconv/core/sparse_tensor.h"
#include "voxconv/core/workspace.h"
#include "voxconv/networks/compiled_network.h"
#include "voxconv/networks/map_store.h"
#include "voxconv/training/forward_backward.h"
#include "voxconv/training/optimizer.h"
#include "voxconv/training/parameter_store.h"
#include "voxconv/training/shared_batch.h"
#include "voxconv/training/step_plan.h"

namespace voxconv {

enum class LossKind {
  kCrossEntropy,        // TrainingOps::CrossEntropy
  kLovasz,              // TrainingOps::LovaszSoftmax
  kCrossEntropyLovasz,  // the sum of both
};
// "cross_entropy", "lovasz" or "cross_entropy+lovasz".
absl::string_view ToString(LossKind kind);
// kInvalidArgument for another name; the message gives these three.
absl::StatusOr<LossKind> ParseLossKind(absl::string_view name);

// What a loss is computed by besides the logits and labels.
struct LossConfig {
  LossKind kind = LossKind::kCrossEntropy;
  std::vector<float> class_weights;  // of cross-entropy, one for each class; empty: all are 1
  int32_t ignored = -1;              // the label of rows that count for nothing
  double smoothing = 0;              // of cross-entropy, in [0, 1)
};

struct TrainingConfig {
  // `trains` is set by the trainer. Batch norms are not folded, and no stages are profiled.
  RunConfig run;
  OptimizerConfig optimizer;
  LossConfig loss;
  double norm_momentum = 0.1;  // BatchNormBatch::momentum
  uint64_t dropout_seed = 0;
  // Most bytes of activations and their gradients; what does not fit is computed a second time in
  // the backward pass. Gradients are the same bits. 0: no limit.
  int64_t activation_limit = 0;
  SharedBatch shared;  // null functions: the trainer has the whole batch
};

// What one step did.
struct StepResult {
  LossResult loss;
  bool skipped = false;  // a gradient was not finite, and no parameter changed
  double gradient_norm = 0;
  float loss_scale = 1;  // of this step's successor
};

// Bytes that training holds on the device.
struct TrainingMemory {
  int64_t parameters = 0;  // values, gradients, and 16-bit copies
  int64_t optimizer = 0;
  int64_t activations = 0;  // with their gradients: the most at once in the last step
  int recomputed = 0;       // layers that ran forward a second time in the last step
  int64_t maps = 0;         // kernel maps and indices at the end of the last step
  // All that the backend has held at once since it was made (Backend::PeakBytes): the above,
  // workspaces, inputs, and what else uses the backend.
  int64_t peak = 0;
};

class RecordedStep;

// Reverse mode over a network's graph. Each step builds its maps once, for all passes. Parameters
// are f32; layers read them and their inputs as StorageOf(precision). One thread at a time drives a
// trainer. The backend must outlive it.
class Trainer {
 public:
  // The parameters of `graph` must have values. kUnimplemented for a backend that cannot train, and
  // for layers and precisions that the plugins do not support in a pass; the message names the
  // layer, the plugin and the pass. kInvalidArgument names a value of `config` that is not allowed.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(NetworkGraph graph,
                                                         const TrainingConfig& config,
                                                         const Registry& registry,
                                                         Backend& backend);

  // One step with the learning rate `rate`: forward, the loss of the network's output against
  // `labels`, backward, and a step of the optimiser. `labels` has one entry for each row of the
  // output: for each voxel of the output's coordinates, in their order, or for each batch sample
  // after a global pooling. Waits for the step. Errors:
  // - kInvalidArgument for an input that does not fit, for one without voxels, for a number of
  //   labels that is not the number of rows, and for labels that are no class and not `ignored`.
  //   Nothing is changed then.
  // - kResourceExhausted if the activations do not keep to their limit. Nothing is changed then.
  // - kOutOfRange if the loss is not finite; the message names the first layer whose result is not.
  //   The parameters are as they were; running statistics of batch norms may have changed.
  absl::StatusOr<StepResult> Step(const SparseTensorView& input, absl::Span<const int32_t> labels,
                                  double rate);

  // Step in two halves, between which the caller may prepare the next batch while the device
  // computes. Queue does not wait for the step. Finish waits for the step and gives its result.
  // Labels are copied; the input must live until Finish. Errors are those of Step.
  // kFailedPrecondition where one half is called twice in a row.
  //
  // On CUDA a step has one wait of the host, that of Finish, where its input was announced or kept
  // maps serve it, and where it is recorded. Otherwise Queue waits too, for the sizes of coordinate
  // sets. Where maps are made anew, Queue may wait once more: weight gradients are queued with the
  // numbers of pairs, which the device counts as soon as it has made a map. That wait comes only if
  // the host has queued the whole forward pass before the device has made the maps, as when other
  // programs keep the device busy. Plugins that must know sizes on the host wait besides, and so
  // may unpooling layers of the forward pass, which read pairs.
  absl::Status Queue(const SparseTensorView& input, absl::Span<const int32_t> labels, double rate);
  absl::StatusOr<StepResult> Finish();

  // Says what the next step is on. Where a step is queued, the coordinate sets of `next` are queued
  // behind it, so that Finish learns their sizes in the same wait. Otherwise Announce waits for
  // their sizes itself, as before the first step of a run. The next Queue then does not wait: on
  // CUDA a step has one wait of the host, where one plugin makes all sets. `next` must live until
  // that Queue or another Announce. kInvalidArgument for an input that does not fit.
  absl::Status Announce(const SparseTensorView& next);

  // Records a whole step on the coordinates of `input`: forward, loss, backward, clipping and
  // optimiser. A replay reads the features of `input` anew, so they must outlive the result; labels
  // and the learning rate are given to it. It gives the bits that Step gives. Runs a step first,
  // which makes the maps, plans and memory, and takes back what it changed; hence waits for the
  // device. Errors:
  // - kUnimplemented on a backend that records nothing.
  // - kFailedPrecondition without RunConfig::keep_maps; where processes share the batch; where a
  //   step is queued; and where a layer waits for the device or copies from the host while it runs,
  //   as poolings of the backend's operators do. The message names the layer.
  // - Those of Step otherwise.
  absl::StatusOr<std::unique_ptr<RecordedStep>> Record(const SparseTensorView& input);

  // Gradients of the last step, [size of the parameter], f32, times the loss scale, for tests.
  // Synchronises the stream. kNotFound for an unknown name and for running statistics.
  absl::StatusOr<std::vector<float>> Gradient(absl::string_view parameter);

  // Calls `observe` with the result of each layer in the forward pass of later steps, for tests.
  // The result is valid in the call alone. An error ends the step. Null: no more calls.
  void Observe(ForwardBackward::Observer observe) { observe_ = std::move(observe); }

  // The network with its present parameters, which a NetworkRunner can run. Synchronises.
  absl::StatusOr<NetworkGraph> Snapshot() const;

  // All that later steps depend on. A trainer of the same network that restores it gives the same
  // steps, bit by bit on one machine. Both functions synchronise the stream. Restore takes a state
  // whose values fit the network and the kind of optimiser (checked).
  struct State {
    ParameterStore::Values parameters;
    Optimizer::Saved optimizer;
  };
  absl::StatusOr<State> Save() const;
  absl::Status Restore(const State& state);

  const TrainingConfig& config() const { return config_; }
  const NetworkGraph& graph() const { return network_->graph; }
  int64_t classes() const { return graph().node(graph().output()).channels; }
  TrainingMemory memory() const;

 private:
  friend class RecordedStep;
  Trainer(std::unique_ptr<CompiledNetwork> network, Backend& backend, TrainingConfig config)
      : network_(std::move(network)),
        backend_(backend),
        config_(std::move(config)),
        plans_(PlansByMemory(network_->graph)),
        maps_(*network_) {}

  ExecutionContext context() const { return {&backend_, &backend_.main_stream(), nullptr}; }
  ForwardBackward::Parts StepParts(MapStore& maps, Workspace& workspace, const SharedBatch& shared);
  // What a step is queued with.
  struct Work {
    const SparseTensorView& input;
    // The labels in the backend's memory, of so many rows.
    std::function<absl::StatusOr<const int32_t*>(int64_t rows)> labels;
    ForwardBackward::Randomness randomness;
    Optimizer::Rate rate;
    MapStore& maps;
    Workspace& workspace;
  };
  // Queues all of a step.
  absl::Status QueueWork(const Work& work);
  absl::Status CheckInput(const SparseTensorView& input) const;
  absl::Status CheckStep(const SparseTensorView& input, absl::Span<const int32_t> labels,
                         double rate) const;
  absl::Status CheckRows(absl::Span<const int32_t> labels, int64_t rows) const;
  absl::Status CheckLabels(absl::Span<const int32_t> labels) const;
  // Why the loss is not finite, as an error.
  absl::Status ExplainLoss(const SparseTensorView& input,
                           const ForwardBackward::Randomness& randomness, double loss);
  // The loss of `logits`, and its gradient in `gradient`. The labels are in the backend's memory.
  absl::Status ComputeLoss(const ConstTensorView& logits, const int32_t* labels,
                           const TensorView& gradient);

  // What a step tells the host.
  struct StepTold {
    LossResult loss;
    StepState state;
  };
  // What explains the loss of a step that is not finished.
  struct QueuedStep {
    SparseTensorView input;
    ForwardBackward::Randomness randomness;
  };

  std::unique_ptr<CompiledNetwork> network_;
  Backend& backend_;
  TrainingConfig config_;
  std::vector<StepPlan> plans_;
  MapStore maps_;
  Workspace workspace_;
  ParameterStore parameters_;
  Optimizer optimizer_;
  Array<float> class_weights_;
  Array<LossResult> loss_;  // [1]
  Buffer told_;             // StepTold, in host memory that copies need not wait for
  int64_t steps_ = 0;       // that began, over all of the training
  std::optional<QueuedStep> queued_;
  ForwardBackward::Observer observe_;
  int64_t peak_activations_ = 0, map_bytes_ = 0;
  int recomputed_ = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_TRAINER_H_
