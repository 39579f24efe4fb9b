// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/schedule.h"

#include <algorithm>
#include <utility>

namespace voxconv {
namespace {

class Scheduler {
 public:
  Scheduler(const NetworkGraph& graph, const std::vector<bool>& fuses,
            const std::vector<bool>& strides, std::vector<bool> kept)
      : graph_(graph),
        fuses_(fuses),
        strides_(strides),
        kept_(std::move(kept)),
        size_(static_cast<int>(graph.nodes().size())),
        consumers_(size_),
        moved_(size_, false) {
    kept_[graph.output()] = true;
    schedule_.tails.resize(size_);
    schedule_.fused_into.assign(size_, -1);
    for (int id = 0; id < size_; ++id) {
      for (int input : graph_.node(id).inputs) consumers_[input].push_back(id);
    }
  }

  Schedule Run() && {
    for (int id = 0; id < size_; ++id) {
      if (schedule_.fused_into[id] >= 0) continue;
      schedule_.tails[id] = {.result = id, .relu = graph_.node(id).relu};
      if (fuses_[id]) TakeOver(id);
      if (graph_.node(id).op == Op::kConcat && Join(id)) continue;
      if (id > 0 && !moved_[id]) schedule_.order.push_back(id);
    }
    FindLifetimes();
    return std::move(schedule_);
  }

 private:
  // The only reader of the node's tensor, -1 where there are others or none, or it is kept.
  int OnlyConsumer(int id) const {
    return !kept_[id] && consumers_[id].size() == 1 ? consumers_[id][0] : -1;
  }

  // Extends the tail of `id` as far as it goes.
  void TakeOver(int id) {
    Tail& tail = schedule_.tails[id];
    while (!tail.relu) {
      const int next = OnlyConsumer(tail.result);
      if (next < 0) return;
      const Node& node = graph_.node(next);
      if (node.op == Op::kBatchNorm && tail.norm < 0 && tail.residual < 0) {
        tail.norm = next;
      } else if (node.op == Op::kAdd && tail.residual < 0) {
        const int other = node.inputs[0] == tail.result ? node.inputs[1] : node.inputs[0];
        if (!MakeAvailable(other, id)) return;
        tail.residual = other;
        if (MayMoveBias(other)) tail.residual_bias = other;
      } else if (node.op != Op::kRelu) {
        return;
      }
      tail.relu = node.relu || node.op == Op::kRelu;
      tail.result = next;
      schedule_.fused_into[next] = id;
    }
  }

  // Whether the tensor of `id` can be there before node `user` runs. Schedules what makes it before
  // the user, if it comes later in the graph.
  bool MakeAvailable(int id, int user) {
    if (id < user) return true;
    std::vector<int> chain;  // from `id` back to a tensor that is there
    for (int at = id; at > user; at = graph_.node(at).inputs[0]) {
      const Node& node = graph_.node(at);
      const bool normed = node.op == Op::kBatchNorm && at == id;
      if ((!normed && !IsPointwise(node)) || moved_[at] || fuses_[at]) return false;
      chain.push_back(at);
    }
    for (auto at = chain.rbegin(); at != chain.rend(); ++at) {
      schedule_.order.push_back(*at);
      moved_[*at] = true;
    }
    return true;
  }

  // Whether the user of the 1x1x1 convolution `id` can add the bias, so that no pass of its own
  // does.
  bool MayMoveBias(int id) const {
    const Node& node = graph_.node(id);
    return IsPointwise(node) && !fuses_[id] && node.parameters.size() > 1 && !node.relu &&
           OnlyConsumer(id) >= 0;
  }

  // The node that stores the tensor of `id` and can store it in a part of another's; -1: none.
  int StriderOf(int id, int concatenation) const {
    if (kept_[id]) return -1;
    for (int reader : consumers_[id]) {
      if (reader != concatenation && !strides_[reader]) return -1;
    }
    const int maker = schedule_.fused_into[id] < 0 ? id : schedule_.fused_into[id];
    return strides_[maker] ? maker : -1;
  }

  // Has the inputs of the concatenation `id` stored where it would copy them; false if they cannot
  // be.
  bool Join(int id) {
    const int a = graph_.node(id).inputs[0], b = graph_.node(id).inputs[1];
    const int makes_a = StriderOf(a, id), makes_b = StriderOf(b, id);
    if (a == b || makes_a < 0 || makes_b < 0) return false;
    schedule_.tails[makes_a].place = {.whole = id, .first = 0};
    schedule_.tails[makes_b].place = {.whole = id, .first = graph_.node(a).channels};
    schedule_.fused_into[id] = std::max(makes_a, makes_b);
    return true;
  }

  void FindLifetimes() {
    schedule_.dying_tensors.resize(size_);
    schedule_.dying_switches.resize(size_);
    std::vector<int> last(size_, -1), last_unpool(size_, -1), whole(size_, -1);
    for (int id : schedule_.order) {
      const Tail& tail = schedule_.tails[id];
      whole[tail.result] = tail.place.whole;
    }
    for (int id : schedule_.order) {
      const Node& node = graph_.node(id);
      const Tail& tail = schedule_.tails[id];
      const auto use = [&](int tensor) {
        last[tensor] = id;
        if (whole[tensor] >= 0) last[whole[tensor]] = id;
      };
      use(tail.result);
      for (int input : node.inputs) use(input);
      if (tail.residual >= 0) use(tail.residual);
      if (node.op == Op::kUnpool) last_unpool[node.counterpart] = id;
    }
    for (int id = 0; id < size_; ++id) {
      if (last[id] >= 0 && !kept_[id]) schedule_.dying_tensors[last[id]].push_back(id);
      if (last_unpool[id] >= 0) schedule_.dying_switches[last_unpool[id]].push_back(id);
    }
  }

  const NetworkGraph& graph_;
  const std::vector<bool>& fuses_;
  const std::vector<bool>& strides_;
  std::vector<bool> kept_;
  const int size_;
  std::vector<std::vector<int>> consumers_;
  std::vector<bool> moved_;  // by node: runs before its turn
  Schedule schedule_;
};

}  // namespace

Schedule MakeSchedule(const NetworkGraph& graph, const std::vector<bool>& fuses,
                      const std::vector<bool>& strides, std::vector<bool> kept) {
  return Scheduler(graph, fuses, strides, std::move(kept)).Run();
}

}  // namespace voxconv
