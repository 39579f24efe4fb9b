// SPDX-License-Identifier: Apache-2.0
// Which mapping and dataflow each layer runs with. Callers name plugins by their specs
// (core/registry.h). Networks know no plugin.
#ifndef VOXCONV_NETWORKS_PLANNER_H_
#define VOXCONV_NETWORKS_PLANNER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/networks/graph.h"

namespace voxconv {

// Plugin specs of one layer.
struct LayerChoice {
  std::string mapping;
  std::string dataflow;
  std::string output_coords;
  friend bool operator==(const LayerChoice&, const LayerChoice&) = default;
};

// Stateless and const.
class Planner {
 public:
  virtual ~Planner() = default;
  // One entry a node. Entries of nodes without a kernel map are ignored.
  virtual absl::StatusOr<std::vector<LayerChoice>> Plan(const NetworkGraph& graph) const = 0;
};

// The same choice for all layers.
class FixedPlanner final : public Planner {
 public:
  explicit FixedPlanner(LayerChoice choice) : choice_(std::move(choice)) {}
  absl::StatusOr<std::vector<LayerChoice>> Plan(const NetworkGraph& graph) const override;

 private:
  LayerChoice choice_;
};

// A layer and what was chosen for it. The channels are kept because networks of other widths have
// the same names of layers.
struct PlannedLayer {
  std::string name;
  int64_t c_in = 0;
  int64_t c_out = 0;
  LayerChoice choice;
  friend bool operator==(const PlannedLayer&, const PlannedLayer&) = default;
};

// A choice for every convolution by name, as tuning saves them. kFailedPrecondition, naming the
// layer, for a network with a convolution that is not listed or has other channels. `rest` is for
// pooling, and for specs that a choice leaves empty.
class ListedPlanner final : public Planner {
 public:
  ListedPlanner(std::vector<PlannedLayer> layers, LayerChoice rest)
      : layers_(std::move(layers)), rest_(std::move(rest)) {}
  absl::StatusOr<std::vector<LayerChoice>> Plan(const NetworkGraph& graph) const override;

 private:
  std::vector<PlannedLayer> layers_;
  LayerChoice rest_;
};

// Convolutions of one stride and accumulated stride. PCEngine gives them the same mapping.
struct StrideGroup {
  Int3 stride, accumulated_stride;
  std::vector<int> layers;  // node ids, ascending
  int64_t max_channels = 0;
};

// Groups in order of their first layer. The accumulated stride is that of the layer's output. An
// inverse convolution belongs to the group of the strided one whose map it uses.
std::vector<StrideGroup> GroupByStride(const NetworkGraph& graph);

// PCEngine's heuristic adaptive dataflow (Section 6, Algorithm 1). A group is narrow if no layer of
// it has max(C_in, C_out) > B, and wide otherwise. All layers of a group run with the same
// dataflow, so that layers that share a map share its layout. The paper's example calls the first
// four of SparseResNet's eight groups narrow at B = 64. By Algorithm 1 as printed, and with this
// project's channels, the first five are: the fifth has exactly 64 channels.
class HeuristicPlanner final : public Planner {
 public:
  struct Config {
    std::string mapping;
    std::string output_coords;
    std::string narrow;              // spec of the dataflow of narrow groups
    std::string wide;                // spec of the dataflow of wide groups
    int64_t channel_threshold = 64;  // B
  };
  explicit HeuristicPlanner(Config config) : config_(std::move(config)) {}
  absl::StatusOr<std::vector<LayerChoice>> Plan(const NetworkGraph& graph) const override;

 private:
  Config config_;
};

// Other choices for the layers whose names match a pattern. Empty specs leave the choice as it is.
struct LayerOverride {
  std::string pattern;  // shell glob over layer names: "encoder?.down", "*.conv2"
  LayerChoice choice;
};

// Overrides apply in order, and the last one wins. kNotFound for a pattern that matches no layer
// with a kernel map.
class OverridePlanner final : public Planner {
 public:
  OverridePlanner(std::shared_ptr<const Planner> base, std::vector<LayerOverride> overrides)
      : base_(std::move(base)), overrides_(std::move(overrides)) {}
  absl::StatusOr<std::vector<LayerChoice>> Plan(const NetworkGraph& graph) const override;

 private:
  std::shared_ptr<const Planner> base_;
  std::vector<LayerOverride> overrides_;
};

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_PLANNER_H_
