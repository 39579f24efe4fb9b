// SPDX-License-Identifier: Apache-2.0
// From measured times to one choice per layer. It knows which layers share a kernel map, and what
// it is worth to share an index, a map or a layout. It measures nothing itself.
#ifndef VOXCONV_NETWORKS_TUNING_H_
#define VOXCONV_NETWORKS_TUNING_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "voxconv/networks/graph.h"

namespace voxconv {

// Convolutions that read one map the same way and have the same channels. One measurement serves
// them all.
struct ShapeGroup {
  bool transposed = false;  // inverse convolutions, which read the map with both sides exchanged
  int64_t c_in = 0;
  int64_t c_out = 0;
  std::vector<int> layers;  // node ids, ascending
};

// The layers of one queried map.
struct MapGroup {
  int node = 0;                // the first layer, whose geometry the map has
  int outputs = 0;             // coordinate set
  bool read_as_pairs = false;  // by a pooling or unpooling
  std::vector<ShapeGroup> shapes;
};

// The maps over one input coordinate set. Those that take the same mapping share its index.
struct IndexGroup {
  int coordinates = 0;
  std::vector<MapGroup> maps;
};

// In order of the first layers. Pointwise convolutions need no map and are in no group.
std::vector<IndexGroup> GroupByIndex(const NetworkGraph& graph);

// The time of what does not run.
inline constexpr double kNoTime = std::numeric_limits<double>::infinity();

// Which of some shared things (indices, layouts) to make. Each costs something to make once, and
// each user costs something with each thing.
struct SharedChoice {
  std::vector<int> taken;  // by user; empty where there is no finite choice
  double ms = kNoTime;     // all together
};

// The cheapest assignment that makes at most kMostShared different things, and the first of equals.
// use_ms[user][thing] and make_ms[thing] may be kNoTime. O(things^kMostShared x users).
inline constexpr int kMostShared = 3;
SharedChoice ChooseShared(absl::Span<const double> make_ms,
                          absl::Span<const std::vector<double>> use_ms);

// One candidate dataflow of a shape.
struct DataflowCost {
  int layout = 0;  // position in a list of layouts
  double ms = kNoTime;
  double plan_ms = 0;  // once for all layers of the shape
};
// What `layers` layers cost with a candidate. Of those with one layout, the cheapest is taken.
inline double CostOf(int64_t layers, double ms, double plan_ms) {
  return plan_ms + static_cast<double>(layers) * ms;
}
struct ShapeCosts {
  int64_t layers = 1;
  std::vector<DataflowCost> candidates;
};

struct MapCosts {
  std::vector<double> query_ms;                 // by mapping
  std::vector<int> form;                        // by mapping: which form of map it emits
  std::vector<std::vector<double>> convert_ms;  // [form][layout]
  std::vector<double> transpose_ms;             // by form; used if there are transposed shapes
  std::vector<double> convert_transposed_ms;    // by layout
  std::vector<ShapeCosts> forward, transposed;
  int pairs_layout = -1;  // the layout that a pooling makes in any case; -1: none
};

struct IndexCosts {
  std::vector<double> build_ms;  // by mapping
  std::vector<MapCosts> maps;
};

struct MapChoice {
  int mapping = -1;
  std::vector<int> forward, transposed;  // by shape: the candidate
};
struct IndexChoice {
  std::vector<MapChoice> maps;  // empty where some layer has no choice
  double ms = kNoTime;          // index builds, queries, conversions and layers
};

// The cheapest joint choice. Layers that share a map share its layout if a second conversion costs
// more than their own best dataflows save, as PCEngine argues for its two dataflows (Section 6).
// Maps share an index in the same way.
IndexChoice ChooseJointly(const IndexCosts& costs);

// The thresholds B that give different plans by Algorithm 1 of PCEngine (see HeuristicPlanner): 0,
// and the widest channels of each group. Ascending.
std::vector<int64_t> ThresholdCandidates(const NetworkGraph& graph);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_TUNING_H_
