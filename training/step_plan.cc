// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/step_plan.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace voxconv {
namespace {

using Kind = StepAction::Kind;

// The tensors that the gradient of node `id` reads besides that of its result.
std::vector<int> BackwardReads(const NetworkGraph& graph, int id) {
  const Node& node = graph.node(id);
  std::vector<int> reads;
  if (MasksGradient(node)) reads.push_back(id);
  switch (node.op) {
    case Op::kConv:
    case Op::kLinear:
    case Op::kBatchNorm:
      reads.push_back(node.inputs[0]);
      break;
    case Op::kGlobalPool:
      if (node.pool_mode == PoolMode::kMax) reads = {node.inputs[0], id};
      break;
    case Op::kInput:
    case Op::kRelu:
    case Op::kAdd:
    case Op::kConcat:
    case Op::kPool:
    case Op::kUnpool:
    case Op::kDropout:
      break;
  }
  return reads;
}

// The pooling whose switches the action reads, or -1.
int SwitchesRead(const NetworkGraph& graph, const StepAction& action) {
  const Node& node = graph.node(action.node);
  int pool = -1;
  if (node.op == Op::kUnpool) pool = node.counterpart;
  if (node.op == Op::kPool && action.kind == Kind::kBackward) pool = action.node;
  return pool >= 0 && graph.node(pool).pool_mode == PoolMode::kMax ? pool : -1;
}

class StepPlanner {
 public:
  StepPlanner(const NetworkGraph& graph, const std::vector<bool>& dropped)
      : graph_(graph),
        size_(static_cast<int>(graph.nodes().size())),
        dropped_(dropped.empty() ? std::vector<bool>(size_, false) : dropped) {}

  StepPlan Run() && {
    FindGradients();
    ListActions();
    FindLifetimes();
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

  void ListActions() {
    for (int id = 1; id < size_; ++id) Append(Kind::kForward, id);
    is_there_.assign(size_, true);
    for (int id = 1; id < size_; ++id) {
      is_there_[id] = !dropped_[id] || id == graph_.output();
    }
    for (int id = size_ - 1; id > 0; --id) {
      if (!plan_.reaches_output[id] || !plan_.needs_gradient[id]) continue;
      for (const int tensor : BackwardReads(graph_, id)) MakeAgain(tensor);
      Append(Kind::kBackward, id);
    }
  }

  // With what it is made of. The depth is that of a segment.
  void MakeAgain(int id) {
    if (is_there_[id]) return;
    for (const int input : graph_.node(id).inputs) MakeAgain(input);
    Append(Kind::kRecompute, id);
    is_there_[id] = true;
    ++plan_.recomputed;
  }

  void Append(Kind kind, int node) {
    plan_.actions.push_back(
        {.kind = kind, .node = node, .dying_tensors = {}, .dying_switches = {}});
  }

  // A tensor lives from the action that makes it to the last one that reads it before it is made
  // again.
  void FindLifetimes() {
    std::vector<int> last_read(size_, 0), last_switches(size_, -1);
    std::vector<StepAction>& actions = plan_.actions;
    const auto die = [&](int id) {
      if (id != graph_.output()) actions[last_read[id]].dying_tensors.push_back(id);
    };
    for (int at = 0; at < static_cast<int>(actions.size()); ++at) {
      const int id = actions[at].node;
      const bool backward = actions[at].kind == Kind::kBackward;
      const std::vector<int>& reads = backward ? BackwardReads(graph_, id) : graph_.node(id).inputs;
      for (const int tensor : reads) last_read[tensor] = at;
      const int pool = SwitchesRead(graph_, actions[at]);
      if (pool >= 0) last_switches[pool] = at;
      if (backward) continue;
      if (actions[at].kind == Kind::kRecompute) die(id);
      last_read[id] = at;
    }
    for (int id = 0; id < size_; ++id) {
      die(id);
      if (last_switches[id] >= 0) actions[last_switches[id]].dying_switches.push_back(id);
    }
  }

  const NetworkGraph& graph_;
  const int size_;
  const std::vector<bool> dropped_;
  std::vector<bool> is_there_;  // by node, while the backward pass is listed
  StepPlan plan_;
};

// Made without a product and without a map.
bool IsElementwise(const Node& node) {
  return node.op == Op::kBatchNorm || node.op == Op::kRelu || node.op == Op::kAdd ||
         node.op == Op::kConcat || node.op == Op::kDropout;
}

// By node: whether it goes where the nodes are cut into `segments` of equal lengths.
std::vector<bool> DroppedBySegments(const NetworkGraph& graph, int segments) {
  const auto size = static_cast<int>(graph.nodes().size());
  const auto segment_of = [&](int id) { return static_cast<int64_t>(id) * segments / size; };
  std::vector<bool> dropped(size, false);
  for (int id = 1; id < size; ++id) dropped[id] = segment_of(id) < segments - 1;
  for (int id = 1; id < size; ++id) {
    for (const int input : graph.node(id).inputs) {
      if (segment_of(input) < segment_of(id)) dropped[input] = false;
    }
    dropped[id] = dropped[id] || (segment_of(id) == segments - 1 && IsElementwise(graph.node(id)));
  }
  return dropped;
}

// Goes through the actions of a step as ForwardBackward does, with sizes in the place of tensors.
class StepMemory {
 public:
  StepMemory(const NetworkGraph& graph, const StepPlan& plan, absl::Span<const NodeBytes> bytes)
      : graph_(graph), plan_(plan), bytes_(bytes), gradients_(bytes.size()) {}

  // The most bytes at once.
  int64_t Run() {
    Grow(bytes_[0].tensor);
    for (const StepAction& action : plan_.actions) {
      const NodeBytes& own = bytes_[action.node];
      if (action.kind == Kind::kBackward) {
        if (!began_backward_) gradients_[graph_.output()] = Make(bytes_[graph_.output()].tensor);
        began_backward_ = true;
        Backward(action.node);
      } else {
        Grow(own.tensor);
        if (action.kind == Kind::kForward) Grow(own.switches);
      }
      for (const int dead : action.dying_tensors) Grow(-bytes_[dead].tensor);
      for (const int dead : action.dying_switches) Grow(-bytes_[dead].switches);
    }
    return peak_;
  }

 private:
  // A gradient's bytes, which several nodes may hold.
  using Gradient = std::shared_ptr<const int64_t>;

  void Grow(int64_t more) {
    live_ += more;
    peak_ = std::max(peak_, live_);
  }
  Gradient Make(int64_t bytes) {
    Grow(bytes);
    return Gradient(new int64_t(bytes), [this](const int64_t* last) {
      Grow(-*last);
      delete last;
    });
  }
  // Itself, or another of its size if others hold it.
  Gradient Writable(const Gradient& gradient) {
    return gradient.use_count() == 1 ? gradient : Make(*gradient);
  }
  bool NeedsInputGradient(int id, int which) const {
    return plan_.needs_gradient[graph_.node(id).inputs[which]];
  }
  void Contribute(int id, int which, Gradient gradient) {
    Gradient& sum = gradients_[graph_.node(id).inputs[which]];
    sum = sum == nullptr ? std::move(gradient) : Writable(sum);
  }

  void Backward(int id) {
    const Node& node = graph_.node(id);
    Gradient dy = std::exchange(gradients_[id], nullptr);
    if (dy == nullptr) return;
    if (MasksGradient(node) && node.op != Op::kBatchNorm) dy = Writable(dy);
    switch (node.op) {
      case Op::kInput:
        break;
      case Op::kConv:
      case Op::kLinear:
      case Op::kPool:
      case Op::kUnpool:
      case Op::kGlobalPool:
        if (NeedsInputGradient(id, 0)) Contribute(id, 0, Make(bytes_[node.inputs[0]].tensor));
        break;
      case Op::kBatchNorm:
      case Op::kDropout:
        if (NeedsInputGradient(id, 0)) Contribute(id, 0, Writable(dy));
        break;
      case Op::kRelu:
      case Op::kAdd:
        for (int which = 0; which < static_cast<int>(node.inputs.size()); ++which) {
          if (NeedsInputGradient(id, which)) Contribute(id, which, dy);
        }
        break;
      case Op::kConcat: {
        Gradient a = Make(*dy / node.channels * graph_.node(node.inputs[0]).channels);
        Gradient b = Make(*dy - *a);
        if (NeedsInputGradient(id, 0)) Contribute(id, 0, std::move(a));
        if (NeedsInputGradient(id, 1)) Contribute(id, 1, std::move(b));
        break;
      }
    }
  }

  const NetworkGraph& graph_;
  const StepPlan& plan_;
  const absl::Span<const NodeBytes> bytes_;
  int64_t live_ = 0, peak_ = 0;
  bool began_backward_ = false;
  std::vector<Gradient> gradients_;  // by node; the last member, whose deleters use the others
};

}  // namespace

int StepPlan::Find(StepAction::Kind kind, int node) const {
  for (size_t at = 0; at < actions.size(); ++at) {
    if (actions[at].kind == kind && actions[at].node == node) return static_cast<int>(at);
  }
  return -1;
}

StepPlan PlanStep(const NetworkGraph& graph, const std::vector<bool>& dropped) {
  return StepPlanner(graph, dropped).Run();
}

std::vector<StepPlan> PlansByMemory(const NetworkGraph& graph) {
  const auto size = static_cast<int>(graph.nodes().size());
  std::vector<StepPlan> plans = {PlanStep(graph)};
  std::vector<bool> dropped(size, false);
  for (int id = 1; id < size; ++id) dropped[id] = IsElementwise(graph.node(id));
  plans.push_back(PlanStep(graph, dropped));
  for (int segments = 2; segments <= size / 2; segments *= 2) {
    plans.push_back(PlanStep(graph, DroppedBySegments(graph, segments)));
  }
  return plans;
}

int64_t PeakBytes(const NetworkGraph& graph, const StepPlan& plan,
                  absl::Span<const NodeBytes> bytes) {
  return StepMemory(graph, plan, bytes).Run();
}

}  // namespace voxconv
