// SPDX-License-Identifier: Apache-2.0
// Which kernel maps a network needs, which layers share them and when they can be freed. Worked out
// once, before any coordinate is known.
#ifndef VOXCONV_NETWORKS_MAP_PLAN_H_
#define VOXCONV_NETWORKS_MAP_PLAN_H_

#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "voxconv/core/dataflow.h"
#include "voxconv/core/geometry.h"
#include "voxconv/networks/graph.h"

namespace voxconv {

// One value for each pass.
template <typename T>
using PerPass = std::array<T, std::size(kAllPasses)>;

// What one layer needs.
struct LayerNeed {
  ConvGeometry geometry;
  std::string mapping;   // canonical spec
  std::string dataflow;  // name of the plugin without its options
  // By pass: what the dataflow reads. Absent: the pass is not run. Pooling has no kWeightGrad.
  PerPass<std::optional<MapNeed>> maps;
};

// A mapping's index over one coordinate set of the graph. It serves every geometry.
struct IndexSlot {
  int coordinates = 0;
  int node = 0;        // the layer whose mapping builds it
  int last_user = -1;  // the last node that queries it
};

// One step from a queried map to what a layer reads. Two layers get the same slot only if all that
// decides its content agrees: input and output coordinates, geometry, mapping, direction, form,
// and the layout with the plugin that makes it.
struct MapSlot {
  // kQuery: Mapping::Query. kTranspose: MapOps::Transpose. kForm: MapOps::To, which costs nothing
  // where the map has the form already. kPrepare: Dataflow::Prepare, for needs with a layout.
  enum class Origin { kQuery, kTranspose, kForm, kPrepare };
  Origin origin = Origin::kQuery;
  int node = 0;                    // kQuery: whose mapping and geometry; kPrepare: whose dataflow
  int index = -1;                  // kQuery: the index slot
  int source = -1;                 // the others: the slot that it is made of
  MapForm form = MapForm::kPairs;  // kForm
  std::string dataflow;            // kPrepare: name of the plugin
  MapNeed need;                    // kPrepare
  bool read = false;               // by a layer; otherwise other slots alone are made of it
  int last_user = -1;              // the last node that reads it or makes another slot of it
};

struct MapPlan {
  std::vector<IndexSlot> indices;
  std::vector<MapSlot> maps;
  // By node: the slots that the layer reads, kForm or kPrepare; -1 for none.
  std::vector<PerPass<int>> maps_of_node;

  int MapOf(int node, Pass pass) const { return maps_of_node[node][static_cast<int>(pass)]; }
};

// `needs` has an entry for every node that uses a kernel map. An inverse convolution and an
// unpooling take the map of their counterpart, whatever their own mapping is. With `reuse` false,
// no other layers share a map or an index.
MapPlan PlanMaps(const NetworkGraph& graph, const std::vector<std::optional<LayerNeed>>& needs,
                 bool reuse);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_MAP_PLAN_H_
