// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/fold_batch_norm.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/networks/batch_norm.h"

namespace voxconv {

// A friend of NetworkGraph. The graph stays valid as GraphBuilder made it.
class BatchNormFolder {
 public:
  explicit BatchNormFolder(NetworkGraph graph) : graph_(std::move(graph)) {}

  absl::StatusOr<NetworkGraph> Run() && {
    for (const Parameter& parameter : graph_.parameters_) {
      if (parameter.values.empty()) {
        return absl::FailedPreconditionError(
            absl::StrCat("parameter '", parameter.name, "' has no values"));
      }
    }
    std::vector<int> consumers(graph_.nodes_.size(), 0);
    for (const Node& node : graph_.nodes_) {
      for (int input : node.inputs) ++consumers[input];
    }
    // A folded batch norm becomes its convolution. The other nodes keep their order.
    std::vector<Node> kept;
    std::vector<int> new_id;
    for (const Node& node : graph_.nodes_) {
      const int input = node.inputs.empty() ? -1 : node.inputs[0];
      if (node.op == Op::kBatchNorm && graph_.nodes_[input].op == Op::kConv &&
          !graph_.nodes_[input].relu && consumers[input] == 1 && input != graph_.output_) {
        Fold(node, kept[new_id[input]]);
        new_id.push_back(new_id[input]);
        continue;
      }
      new_id.push_back(static_cast<int>(kept.size()));
      kept.push_back(node);
      for (int& id : kept.back().inputs) id = new_id[id];
      if (node.counterpart >= 0) kept.back().counterpart = new_id[node.counterpart];
    }
    graph_.nodes_ = std::move(kept);
    graph_.output_ = new_id[graph_.output_];
    return std::move(graph_);
  }

 private:
  void Fold(const Node& norm, Node& conv) {
    const ScaleAndShift affine = InferenceBatchNorm(graph_, norm);
    const size_t c_out = affine.scale.size();
    std::vector<float>& weights = graph_.parameters_[conv.parameters[0]].values;
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = static_cast<float>(weights[i] * affine.scale[i % c_out]);
    }
    if (conv.parameters.size() < 2) {
      conv.parameters.push_back(static_cast<int>(graph_.parameters_.size()));
      graph_.parameters_.push_back({conv.name + ".bias",
                                    {static_cast<int64_t>(c_out)},
                                    Parameter::Role::kBias,
                                    std::vector<float>(c_out, 0.0f)});
    }
    std::vector<float>& bias = graph_.parameters_[conv.parameters[1]].values;
    for (size_t c = 0; c < c_out; ++c) {
      bias[c] = static_cast<float>(bias[c] * affine.scale[c] + affine.shift[c]);
    }
    conv.relu = norm.relu;
  }

  NetworkGraph graph_;
};

absl::StatusOr<NetworkGraph> FoldBatchNorm(NetworkGraph graph) {
  return BatchNormFolder(std::move(graph)).Run();
}

}  // namespace voxconv
