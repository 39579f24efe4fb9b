// SPDX-License-Identifier: Apache-2.0
// What a training step keeps of its forward pass, and until when. Worked out once, before any
// coordinate is known.
#ifndef VOXCONV_TRAINING_BACKWARD_PLAN_H_
#define VOXCONV_TRAINING_BACKWARD_PLAN_H_

#include <vector>

#include "voxconv/networks/graph.h"

namespace voxconv {

// A step runs the nodes 1, 2, ... n - 1 forward and then n - 1, ... 2, 1 backward. The work on node
// i is at moment i when it runs forward, and at moment 2 * n - 1 - i when it runs backward.
struct BackwardPlan {
  // By node: whether the gradient of its tensor is needed. A node needs it if a trained parameter
  // is at it or before it. The input does not need it.
  std::vector<bool> needs_gradient;
  // By node: whether its tensor reaches the loss. Other nodes do not run backward.
  std::vector<bool> reaches_output;
  // By moment: the nodes whose tensors, and those whose switches, nothing reads afterwards.
  std::vector<std::vector<int>> dying_tensors, dying_switches;

  int Moment(int node, bool backward) const {
    const auto nodes = static_cast<int>(needs_gradient.size());
    return backward ? 2 * nodes - 1 - node : node;
  }
};

BackwardPlan PlanBackward(const NetworkGraph& graph);

// Whether a batch norm, convolution, sum or linear layer of the node ends with a ReLU whose
// gradient reads the node's own result.
inline bool MasksGradient(const Node& node) { return node.relu || node.op == Op::kRelu; }

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_BACKWARD_PLAN_H_
