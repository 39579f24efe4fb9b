// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/map_plan.h"

#include <algorithm>
#include <utility>

#include "voxconv/core/check.h"

namespace voxconv {
namespace {

class MapPlanner {
 public:
  MapPlanner(const NetworkGraph& graph, const std::vector<std::optional<LayerNeed>>& needs,
             bool reuse)
      : graph_(graph), needs_(needs), reuse_(reuse) {
    constexpr PerPass<int> kNone{-1, -1, -1};
    plan_.maps_of_node.assign(graph.nodes().size(), kNone);
    queried_of_node_.assign(graph.nodes().size(), -1);
  }

  MapPlan Run() && {
    // Forward passes come first, so that their slots do not depend on whether the network trains.
    for (const Pass pass : kAllPasses) {
      for (int id = 0; id < static_cast<int>(graph_.nodes().size()); ++id) {
        if (!needs_[id].has_value()) continue;
        const std::optional<MapNeed>& need = needs_[id]->maps[static_cast<int>(pass)];
        if (need.has_value()) plan_.maps_of_node[id][static_cast<int>(pass)] = MapOf(id, *need);
      }
    }
    return std::move(plan_);
  }

 private:
  int MapOf(int id, const MapNeed& need) {
    const Node& node = graph_.node(id);
    int slot;
    bool transposed = need.transposed;
    if (node.counterpart < 0) {
      if (queried_of_node_[id] < 0) queried_of_node_[id] = Queried(id);
      slot = queried_of_node_[id];
    } else {
      slot = queried_of_node_[node.counterpart];
      VOXCONV_CHECK(slot >= 0);
      // An unpooling walks the map of its pooling as it is.
      if (node.op == Op::kConv) transposed = !transposed;
    }
    if (transposed) slot = Derived({.origin = MapSlot::Origin::kTranspose, .source = slot}, id);
    slot = Derived({.origin = MapSlot::Origin::kForm, .source = slot, .form = need.form}, id);
    if (!need.layout.empty()) {
      slot = Derived({.origin = MapSlot::Origin::kPrepare,
                      .node = id,
                      .source = slot,
                      .dataflow = needs_[id]->dataflow,
                      .need = need},
                     id);
    }
    plan_.maps[slot].read = true;
    Use(slot, id);
    return slot;
  }

  void Use(int slot, int id) {
    plan_.maps[slot].last_user = std::max(plan_.maps[slot].last_user, id);
  }

  // The map as the mapping emits it.
  int Queried(int id) {
    const Node& node = graph_.node(id);
    for (int slot = 0; reuse_ && slot < static_cast<int>(plan_.maps.size()); ++slot) {
      const MapSlot& map = plan_.maps[slot];
      if (map.origin != MapSlot::Origin::kQuery) continue;
      const Node& other = graph_.node(map.node);
      if (InputCoordinates(other) == InputCoordinates(node) &&
          other.coordinates == node.coordinates &&
          needs_[map.node]->geometry.params() == needs_[id]->geometry.params() &&
          needs_[map.node]->mapping == needs_[id]->mapping) {
        return slot;
      }
    }
    const int index = Index(id);
    plan_.indices[index].last_user = id;
    plan_.maps.push_back(
        {.origin = MapSlot::Origin::kQuery, .node = id, .index = index, .last_user = id});
    return static_cast<int>(plan_.maps.size()) - 1;
  }

  int Index(int id) {
    const int coordinates = InputCoordinates(graph_.node(id));
    for (int index = 0; reuse_ && index < static_cast<int>(plan_.indices.size()); ++index) {
      const IndexSlot& slot = plan_.indices[index];
      if (slot.coordinates == coordinates && needs_[slot.node]->mapping == needs_[id]->mapping) {
        return index;
      }
    }
    plan_.indices.push_back({coordinates, id, id});
    return static_cast<int>(plan_.indices.size()) - 1;
  }

  // The slot `wanted`, which node `id` uses: an earlier one where it has the same content.
  int Derived(MapSlot wanted, int id) {
    for (int slot = 0; reuse_ && slot < static_cast<int>(plan_.maps.size()); ++slot) {
      const MapSlot& map = plan_.maps[slot];
      if (map.origin == wanted.origin && map.source == wanted.source && map.form == wanted.form &&
          map.dataflow == wanted.dataflow && map.need == wanted.need) {
        return slot;
      }
    }
    Use(wanted.source, id);
    wanted.last_user = id;
    plan_.maps.push_back(std::move(wanted));
    return static_cast<int>(plan_.maps.size()) - 1;
  }

  int InputCoordinates(const Node& node) const { return graph_.node(node.inputs[0]).coordinates; }

  const NetworkGraph& graph_;
  const std::vector<std::optional<LayerNeed>>& needs_;
  const bool reuse_;
  MapPlan plan_;
  std::vector<int> queried_of_node_;  // by node: the slot of the map as queried
};

}  // namespace

MapPlan PlanMaps(const NetworkGraph& graph, const std::vector<std::optional<LayerNeed>>& needs,
                 bool reuse) {
  return MapPlanner(graph, needs, reuse).Run();
}

}  // namespace voxconv
