// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/planner.h"

#include <fnmatch.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

void Override(const LayerChoice& from, LayerChoice& to) {
  if (!from.mapping.empty()) to.mapping = from.mapping;
  if (!from.dataflow.empty()) to.dataflow = from.dataflow;
  if (!from.output_coords.empty()) to.output_coords = from.output_coords;
}

}  // namespace

absl::StatusOr<std::vector<LayerChoice>> FixedPlanner::Plan(const NetworkGraph& graph) const {
  return std::vector<LayerChoice>(graph.nodes().size(), choice_);
}

absl::StatusOr<std::vector<LayerChoice>> ListedPlanner::Plan(const NetworkGraph& graph) const {
  std::vector<LayerChoice> choices(graph.nodes().size(), rest_);
  for (int id : graph.Convolutions(/*with_shortcuts=*/false)) {
    const Node& node = graph.node(id);
    const auto layer =
        std::find_if(layers_.begin(), layers_.end(),
                     [&](const PlannedLayer& listed) { return listed.name == node.name; });
    if (layer == layers_.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("plan: has no layer '", node.name, "' of ", graph.name()));
    }
    const int64_t c_in = graph.InputChannels(node);
    if (layer->c_in != c_in || layer->c_out != node.channels) {
      return absl::FailedPreconditionError(
          absl::StrCat("plan: layer '", node.name, "' has channels ", layer->c_in, "->",
                       layer->c_out, "; this ", graph.name(), " has ", c_in, "->", node.channels));
    }
    Override(layer->choice, choices[id]);
  }
  return choices;
}

std::vector<StrideGroup> GroupByStride(const NetworkGraph& graph) {
  std::vector<StrideGroup> groups;
  for (int id : graph.Convolutions()) {
    const Node& layer = graph.node(id);
    const Node& owner = layer.counterpart >= 0 ? graph.node(layer.counterpart) : layer;
    const Int3& accumulated = graph.coordinates()[owner.coordinates].tensor_stride;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const StrideGroup& g) {
      return g.stride == owner.geometry.stride && g.accumulated_stride == accumulated;
    });
    if (group == groups.end()) {
      groups.push_back({owner.geometry.stride, accumulated, {}, 0});
      group = groups.end() - 1;
    }
    group->layers.push_back(id);
    group->max_channels =
        std::max({group->max_channels, graph.InputChannels(layer), layer.channels});
  }
  return groups;
}

absl::StatusOr<std::vector<LayerChoice>> HeuristicPlanner::Plan(const NetworkGraph& graph) const {
  if (config_.channel_threshold < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("channel threshold ", config_.channel_threshold, ": must be 0 or more"));
  }
  if (config_.narrow.empty() || config_.wide.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("planner: no dataflow is given for ",
                                                   config_.narrow.empty() ? "narrow" : "wide",
                                                   " layers"));
  }
  std::vector<LayerChoice> choices(graph.nodes().size(),
                                   {config_.mapping, config_.wide, config_.output_coords});
  for (const StrideGroup& group : GroupByStride(graph)) {
    if (group.max_channels > config_.channel_threshold) continue;
    for (int id : group.layers) choices[id].dataflow = config_.narrow;
  }
  return choices;
}

absl::StatusOr<std::vector<LayerChoice>> OverridePlanner::Plan(const NetworkGraph& graph) const {
  VOXCONV_ASSIGN_OR_RETURN(std::vector<LayerChoice> choices, base_->Plan(graph));
  for (const LayerOverride& overriding : overrides_) {
    bool matched = false;
    for (size_t id = 0; id < graph.nodes().size(); ++id) {
      const Node& node = graph.nodes()[id];
      if (!UsesKernelMap(node) || fnmatch(overriding.pattern.c_str(), node.name.c_str(), 0) != 0)
        continue;
      Override(overriding.choice, choices[id]);
      matched = true;
    }
    if (!matched) {
      return absl::NotFoundError(absl::StrCat("layer pattern '", overriding.pattern,
                                              "': matches no convolution or pooling of ",
                                              graph.name()));
    }
  }
  return choices;
}

}  // namespace voxconv
