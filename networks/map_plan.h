// Which kernel maps a network needs, who shares them and when they can go: worked out once, before
// any coordinate is known.
#ifndef VOXCONV_NETWORKS_MAP_PLAN_H_
#define VOXCONV_NETWORKS_MAP_PLAN_H_

#include <optional>
#include <string>
#include <vector>

#include "core/geometry.h"
#include "core/kernel_map.h"
#include "networks/graph.h"

namespace voxconv {

// A layer's need for a map.
struct MapNeed {
  ConvGeometry geometry;
  std::string mapping;   // canonical spec
  LayoutRequest layout;  // what the dataflow takes
};

// A mapping's index over one coordinate set of the graph. Serves every geometry.
struct IndexSlot {
  int coordinates = 0;
  int node = 0;        // whose mapping builds it; the mapping's spec belongs to the key
  int last_user = -1;  // the last node that queries it
};

// One kernel map of a run. Two layers get the same slot only if everything that decides the map
// agrees: input and output coordinates, geometry, mapping, layout, and whether it is transposed.
struct MapSlot {
  enum class Origin { kQuery, kTranspose, kConvert };
  Origin origin = Origin::kQuery;
  int node = 0;          // kQuery: whose mapping and geometry
  int index = -1;        // kQuery: index slot
  int source = -1;       // otherwise: the slot that it is made from
  LayoutRequest layout;  // kConvert
  int last_user = -1;    // the last node that reads it or makes another map from it
};

struct MapPlan {
  std::vector<IndexSlot> indices;
  std::vector<MapSlot> maps;
  // By node: the slot of its map, -1 for none.
  std::vector<int> map_of_node;
};

// `needs` has an entry for every node that uses a kernel map; an inverse convolution and an
// unpooling take their counterpart's, whatever their own mapping. With `reuse` false, no two layers
// share a map or an index, but for those two.
MapPlan PlanMaps(const NetworkGraph& graph, const std::vector<std::optional<MapNeed>>& needs,
                 bool reuse);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_MAP_PLAN_H_
