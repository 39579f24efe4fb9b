// SPDX-License-Identifier: Apache-2.0
// The forward and the backward pass of one training step.
#ifndef VOXCONV_TRAINING_FORWARD_BACKWARD_H_
#define VOXCONV_TRAINING_FORWARD_BACKWARD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/sparse_tensor.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/core/training_ops.h"
#include "voxconv/core/workspace.h"
#include "voxconv/networks/compiled_network.h"
#include "voxconv/networks/map_store.h"
#include "voxconv/training/parameter_store.h"
#include "voxconv/training/shared_batch.h"
#include "voxconv/training/step_plan.h"

namespace voxconv {

// One step of a network that was compiled with RunConfig::trains. Owns the step's activations. The
// arguments of the constructor must outlive it. Work is queued on the backend's main stream, and
// maps are built beside it (RunConfig::parallel_maps). The host waits once for the sizes of the
// coordinate sets. The backward pass needs the pairs of tables on the host. They are counted in the
// forward pass, so that the host waits for them only if the device has not come that far.
class ForwardBackward {
 public:
  struct Parts {
    const CompiledNetwork& network;
    const std::vector<StepPlan>& plans;  // from most memory to least (PlansByMemory)
    // Most bytes of activations and their gradients; the first plan that keeps to it is taken. 0:
    // no limit, the first plan.
    int64_t activation_limit;
    ParameterStore& parameters;
    MapStore& maps;
    Workspace& workspace;
    Backend& backend;
    const SharedBatch& shared;
  };
  explicit ForwardBackward(const Parts& parts);

  // What a step's random layers depend on besides their place in the graph.
  struct Randomness {
    uint64_t seed = 0;
    int64_t step = 0;
    // The seeds of the graph's dropout layers, in their order, in the backend's memory, so that a
    // recorded step may change them. The other values are then not read. Null: there are none.
    const uint64_t* shared_seeds = nullptr;
  };
  // The same seeds on the host.
  static std::vector<uint64_t> DropoutSeeds(const NetworkGraph& graph,
                                            const Randomness& randomness);

  // Runs all layers. Batch norms take the statistics of this batch, and update their running
  // statistics with `momentum`. The input fits the network, and must live until Backward has
  // returned. `observe`, unless it is null, is called with the result of each layer. An error names
  // the layer. kResourceExhausted if no plan keeps to the limit; with a limit, the host waits for
  // the sizes of all coordinate sets.
  using Observer = std::function<absl::Status(const Node& node, const ConstTensorView& result)>;
  absl::Status Forward(const SparseTensorView& input, double momentum, const Randomness& randomness,
                       const Observer& observe = nullptr);

  // The result of the graph's output node, [rows, channels].
  ConstTensorView output() const { return values_[graph_.output()].view; }
  // Its coordinates; null after a global pooling.
  CoordinateSetPtr output_coordinates() const;

  // The plan that Forward took.
  const StepPlan& plan() const { return *plan_; }

  // Writes the gradients of all trained parameters. `gradient` is that of the output, of the same
  // shape and dtype. Called once, after Forward.
  absl::Status Backward(Tensor gradient);

  // The most bytes of activations, and of their gradients, that were held at once.
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  // What the forward pass keeps of a node.
  struct Value {
    Tensor owned;  // empty for the input, unless it was converted
    ConstTensorView view;
    Array<int32_t> switches;  // of a max pooling
    // Of a batch norm, [5, C]: mean, deviation, inverse_std, scale, shift.
    Array<float> statistics;
    Array<double> shared_sums;  // of a batch norm whose batch is shared, [1 + 2 * C]
  };
  // A gradient may be that of several nodes. A node changes it in place only if it is alone.
  using Gradient = std::shared_ptr<Tensor>;

  // Takes the first plan that keeps to the limit. The rows of all tensors are known.
  absl::Status ChoosePlan(const SparseTensorView& input);
  absl::Status Run(const StepAction& action);

  absl::Status ForwardLayers(const SparseTensorView& input);
  // Makes all coordinate sets, because the host waits for their sizes. Meanwhile the device runs
  // the layers that need none of them.
  absl::Status MakeCoordinates(bool run_layers);
  // Runs the next layers of the forward pass; with `known_only`, those before the first whose
  // coordinates are not made.
  absl::Status RunLayers(bool known_only);
  // Builds the maps of the next few layers beside the layers that run.
  absl::Status BuildMaps();

  absl::Status ForwardNode(int id);
  absl::Status ForwardConv(int id);
  absl::Status ForwardLinear(int id);
  absl::Status ForwardBatchNorm(int id);
  // Replaces the moments of a batch norm by those of all processes.
  absl::Status ShareMoments(int64_t rows, Value& value);
  absl::Status ForwardPool(int id);
  absl::Status ForwardUnpool(int id);
  absl::Status ForwardGlobalPool(int id);
  absl::Status Dropout(int id, const ConstTensorView& x, const TensorView& y);

  absl::Status BackwardNode(int id, Gradient dy);
  absl::Status BackwardConv(int id, const Gradient& dy);
  absl::Status BackwardLinear(int id, const Gradient& dy);
  absl::Status BackwardBatchNorm(int id, const Gradient& dy);
  // Writes the sums of all processes to `sums`, [2, C], from those of `args`, which then has them.
  absl::Status ShareGradientSums(int id, Array<float>& sums, BatchNormGradArgs& args);
  absl::Status BackwardConcat(int id, const Gradient& dy);
  absl::Status BackwardPool(int id, const Gradient& dy);
  absl::Status BackwardUnpool(int id, const Gradient& dy);
  absl::Status BackwardGlobalPool(int id, const Gradient& dy);

  const Node& node(int id) const { return graph_.node(id); }
  const ConstTensorView& Input(int id, int which = 0) const {
    return values_[node(id).inputs[which]].view;
  }
  // Whether the gradient of the node's input `which` is needed.
  bool NeedsInputGradient(int id, int which = 0) const {
    return plan_->needs_gradient[node(id).inputs[which]];
  }
  // An uninitialised matrix as the network stores features.
  absl::StatusOr<Tensor> Make(int64_t rows, int64_t channels);
  // The same, as the result of node `id`.
  absl::StatusOr<TensorView> MakeResult(int id, int64_t rows);
  absl::StatusOr<Gradient> MakeGradient(int64_t rows, int64_t channels);
  // Returns `tensor` as a gradient. Grow has counted its bytes. They count until the last node
  // gives it up.
  Gradient Counted(Tensor tensor);
  // `gradient`, where it may be written to: itself if nobody else has it, or a new matrix like it.
  absl::StatusOr<Gradient> Writable(const Gradient& gradient);
  // Adds a gradient to that of the node's input `which`.
  absl::Status Contribute(int id, int which, Gradient gradient);
  absl::StatusOr<std::shared_ptr<const PreparedMap>> Map(int id, Pass pass);
  void FreeAfter(const StepAction& action);
  void Grow(int64_t bytes);

  const CompiledNetwork& network_;
  const NetworkGraph& graph_;
  const std::vector<StepPlan>& plans_;
  const int64_t activation_limit_;
  const StepPlan* plan_;
  ParameterStore& parameters_;
  MapStore& maps_;
  Workspace& workspace_;
  ExecutionContext context_;
  TensorOps& ops_;
  TrainingOps& training_;
  const DType storage_;
  const SharedBatch& shared_;
  double momentum_ = 0;
  Randomness randomness_;
  const Observer* observe_ = nullptr;  // of the forward pass that runs; null: none
  size_t next_ = 0;                    // of the plan's actions, in the forward pass
  bool again_ = false;                 // a node runs forward a second time
  std::vector<Value> values_;          // by node
  std::vector<Gradient> gradients_;    // by node
  LayerReport ignored_layer_;
  RunReport ignored_report_;
  int64_t live_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_FORWARD_BACKWARD_H_
