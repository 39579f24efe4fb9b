// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/backward_plan.h"

#include <algorithm>

namespace voxconv {
namespace {

class LifetimePlanner {
 public:
  explicit LifetimePlanner(const NetworkGraph& graph)
      : graph_(graph),
        size_(static_cast<int>(graph.nodes().size())),
        last_read_(size_, 0),
        last_switches_(size_, -1) {}

  BackwardPlan Run() && {
    FindGradients();
    for (int id = 0; id < size_; ++id) {
      last_read_[id] = std::max(last_read_[id], plan_.Moment(id, false));
      const Node& node = graph_.node(id);
      for (const int input : node.inputs) Read(input, plan_.Moment(id, false));
      if (node.op == Op::kUnpool) ReadSwitches(node.counterpart, plan_.Moment(id, false));
      if (plan_.reaches_output[id] && plan_.needs_gradient[id]) ReadBackward(id);
    }
    plan_.dying_tensors.resize(2 * size_);
    plan_.dying_switches.resize(2 * size_);
    for (int id = 0; id < size_; ++id) {
      if (id != graph_.output()) plan_.dying_tensors[last_read_[id]].push_back(id);
      if (last_switches_[id] >= 0) plan_.dying_switches[last_switches_[id]].push_back(id);
    }
    return std::move(plan_);
  }

 private:
  void FindGradients() {
    plan_.needs_gradient.assign(size_, false);
    plan_.reaches_output.assign(size_, false);
    for (int id = 1; id < size_; ++id) {
      const Node& node = graph_.node(id);
      plan_.needs_gradient[id] =
          !node.parameters.empty() ||
          std::any_of(node.inputs.begin(), node.inputs.end(),
                      [&](int input) { return plan_.needs_gradient[input]; });
    }
    plan_.reaches_output[graph_.output()] = true;
    for (int id = size_ - 1; id > 0; --id) {
      if (!plan_.reaches_output[id]) continue;
      for (const int input : graph_.node(id).inputs) plan_.reaches_output[input] = true;
    }
  }

  void Read(int node, int moment) { last_read_[node] = std::max(last_read_[node], moment); }
  void ReadSwitches(int node, int moment) {
    if (graph_.node(node).pool_mode != PoolMode::kMax) return;
    last_switches_[node] = std::max(last_switches_[node], moment);
  }

  // What the gradient of node `id` reads besides that of its result.
  void ReadBackward(int id) {
    const Node& node = graph_.node(id);
    const int moment = plan_.Moment(id, true);
    if (MasksGradient(node)) Read(id, moment);
    switch (node.op) {
      case Op::kConv:
      case Op::kLinear:
      case Op::kBatchNorm:
        Read(node.inputs[0], moment);
        break;
      case Op::kGlobalPool:
        if (node.pool_mode != PoolMode::kMax) break;
        Read(node.inputs[0], moment);
        Read(id, moment);
        break;
      case Op::kPool:
        ReadSwitches(id, moment);
        break;
      case Op::kUnpool:
        ReadSwitches(node.counterpart, moment);
        break;
      case Op::kInput:
      case Op::kRelu:
      case Op::kAdd:
      case Op::kConcat:
      case Op::kDropout:
        break;
    }
  }

  const NetworkGraph& graph_;
  const int size_;
  BackwardPlan plan_;
  std::vector<int> last_read_;      // by node: the moment
  std::vector<int> last_switches_;  // by node: the moment; -1: there are none
};

}  // namespace

BackwardPlan PlanBackward(const NetworkGraph& graph) { return LifetimePlanner(graph).Run(); }

}  // namespace voxconv
