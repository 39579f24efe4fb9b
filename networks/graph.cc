// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/graph.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace voxconv {

absl::string_view ToString(Op op) {
  switch (op) {
    case Op::kInput:
      return "input";
    case Op::kConv:
      return "conv";
    case Op::kBatchNorm:
      return "batch_norm";
    case Op::kRelu:
      return "relu";
    case Op::kAdd:
      return "add";
    case Op::kConcat:
      return "concat";
    case Op::kLinear:
      return "linear";
    case Op::kPool:
      return "pool";
    case Op::kUnpool:
      return "unpool";
    case Op::kGlobalPool:
      return "global_pool";
    case Op::kDropout:
      return "dropout";
  }
  return "?";
}

int64_t Parameter::size() const {
  int64_t size = 1;
  for (int64_t extent : shape) size *= extent;
  return size;
}

std::vector<int> NetworkGraph::Convolutions(bool with_shortcuts) const {
  std::vector<int> ids;
  for (int id = 0; id < static_cast<int>(nodes_.size()); ++id) {
    if (nodes_[id].op != Op::kConv) continue;
    if (with_shortcuts || !IsPointwise(nodes_[id])) ids.push_back(id);
  }
  return ids;
}

std::vector<int> NetworkGraph::LastConsumers() const {
  std::vector<int> last(nodes_.size());
  for (int id = 0; id < static_cast<int>(nodes_.size()); ++id) {
    last[id] = id;
    for (int input : nodes_[id].inputs) last[input] = id;
  }
  return last;
}

int64_t NetworkGraph::num_parameters() const {
  int64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.size();
  return count;
}

absl::Status NetworkGraph::SetParameter(absl::string_view name, absl::Span<const float> values) {
  const auto parameter =
      std::find_if(parameters_.begin(), parameters_.end(),
                   [&](const Parameter& candidate) { return candidate.name == name; });
  if (parameter == parameters_.end()) {
    return absl::NotFoundError(
        absl::StrCat("parameter '", name, "': ", name_, " has none of this name"));
  }
  if (static_cast<int64_t>(values.size()) != parameter->size()) {
    return absl::InvalidArgumentError(absl::StrCat("parameter '", name, "': ", values.size(),
                                                   " values; it has ", parameter->size()));
  }
  parameter->values.assign(values.begin(), values.end());
  return absl::OkStatus();
}

void NetworkGraph::ReleaseParameters() {
  for (Parameter& parameter : parameters_) std::vector<float>().swap(parameter.values);
}

bool IsPointwise(const Node& node) {
  return node.op == Op::kConv && node.geometry.kind == ConvKind::kSubmanifold &&
         node.geometry.kernel == Int3{1, 1, 1};
}

bool UsesKernelMap(const Node& node) {
  return (node.op == Op::kConv && !IsPointwise(node)) || node.op == Op::kPool ||
         node.op == Op::kUnpool;
}

}  // namespace voxconv
