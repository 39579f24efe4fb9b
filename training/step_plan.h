// SPDX-License-Identifier: Apache-2.0
// What a training step does in which order, what it keeps of its forward pass and until when, and
// what it computes a second time to save memory. Worked out before any coordinate is known.
#ifndef VOXCONV_TRAINING_STEP_PLAN_H_
#define VOXCONV_TRAINING_STEP_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "voxconv/networks/graph.h"

namespace voxconv {

// One action of a step, in the order in which they run.
struct StepAction {
  enum class Kind {
    kForward,    // of all nodes but the input, in ascending order; then
    kBackward,   // of those whose gradient is needed, in descending order
    kRecompute,  // between backward actions: makes a tensor again that was freed
  };
  Kind kind = Kind::kForward;
  int node = 0;
  // The nodes whose tensors, and those whose switches, no later action reads before it is made
  // again.
  std::vector<int> dying_tensors, dying_switches;
};

struct StepPlan {
  // By node: whether the gradient of its tensor is needed. A node needs it if a trained parameter
  // is at it or before it. The input does not need it.
  std::vector<bool> needs_gradient;
  // By node: whether its tensor reaches the loss. Other nodes do not run backward.
  std::vector<bool> reaches_output;
  std::vector<StepAction> actions;
  int recomputed = 0;  // actions of the kind kRecompute

  // The place of a node's first action of this kind, or -1.
  int Find(StepAction::Kind kind, int node) const;
};

// A plan that frees the tensors of the nodes in `dropped` after their last forward reader, and
// makes them again for the backward pass. `dropped`: by node; empty: none.
StepPlan PlanStep(const NetworkGraph& graph, const std::vector<bool>& dropped = {});

// Plans that keep less and less and compute more and more again:
// - all tensors are kept;
// - only those that are made by products or pooling are kept: batch norms, sums, concatenations and
//   ReLUs run again;
// - the nodes are cut into 2, 4, 8, ... segments, and of all segments but the last only those
//   tensors are kept that a later segment reads (Chen et al., "Training Deep Nets with Sublinear
//   Memory Cost").
std::vector<StepPlan> PlansByMemory(const NetworkGraph& graph);

// Bytes by node: of its tensor, and of its switches if it is a max pooling.
struct NodeBytes {
  int64_t tensor = 0;
  int64_t switches = 0;
};

// The most bytes of activations and of their gradients that a step holds at once:
// TrainingMemory::activations of a step of this plan.
int64_t PeakBytes(const NetworkGraph& graph, const StepPlan& plan,
                  absl::Span<const NodeBytes> bytes);

// Whether a batch norm, convolution, sum or linear layer of the node ends with a ReLU whose
// gradient reads the node's own result.
inline bool MasksGradient(const Node& node) { return node.relu || node.op == Op::kRelu; }

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_STEP_PLAN_H_
