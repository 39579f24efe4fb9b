// SPDX-License-Identifier: Apache-2.0
#include "voxconv/tune/plan_record.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "voxconv/networks/tuning.h"

namespace voxconv::tune {
namespace {

using measure::Json;

constexpr size_t kRunnersUp = 3;

Json RunnersUp(const std::vector<Timed>& others) {
  Json list = Json::array();
  for (size_t i = 0; i < std::min(others.size(), kRunnersUp); ++i) {
    list.push_back({{"spec", others[i].spec}, {"ms", others[i].ms}});
  }
  return list;
}

std::string Geometry(const Node& node) {
  const auto geometry = ConvGeometry::Create(node.geometry);
  return geometry.ok() ? geometry->ToString() : "";
}

PlannedLayer Planned(const NetworkGraph& graph, int id, const LayerChoice& choice) {
  const Node& node = graph.node(id);
  return {node.name, graph.InputChannels(node), node.channels, choice};
}

// Sums by spec, of those that every one of `count` users has.
class Sums {
 public:
  void Add(const std::string& spec, double ms) {
    auto& [sum, users] = sums_[spec];
    sum += ms;
    ++users;
  }
  std::string Least(size_t count) const {
    std::string least;
    double least_ms = 0;
    for (const auto& [spec, entry] : sums_) {
      if (entry.second != count || (!least.empty() && entry.first >= least_ms)) continue;
      least = spec;
      least_ms = entry.first;
    }
    return least;
  }

 private:
  std::map<std::string, std::pair<double, size_t>> sums_;
};

// Exchanges what was chosen with the entry of `spec` among the others, which stay in order. What
// was no candidate has no time of its own.
void Exchange(const std::string& spec, Timed& chosen, std::vector<Timed>& others) {
  if (chosen.spec == spec) return;
  const auto other = std::find_if(others.begin(), others.end(),
                                  [&](const Timed& timed) { return timed.spec == spec; });
  if (other == others.end()) {
    others.push_back(std::exchange(chosen, {spec, kNoTime}));
  } else {
    std::swap(*other, chosen);
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const Timed& a, const Timed& b) { return a.ms < b.ms; });
}

}  // namespace

std::vector<PlannedLayer> PlannedLayers(const NetworkGraph& graph, const SearchResult& result) {
  std::vector<PlannedLayer> layers;
  for (const TunedLayer& layer : result.layers) {
    layers.push_back(Planned(graph, layer.node, layer.choice));
  }
  return layers;
}

std::vector<PlannedLayer> PlannedLayers(const NetworkGraph& graph,
                                        const std::vector<LayerChoice>& choices) {
  std::vector<PlannedLayer> layers;
  for (int id : graph.Convolutions(/*with_shortcuts=*/false)) {
    layers.push_back(Planned(graph, id, choices[id]));
  }
  return layers;
}

Json Details(const NetworkGraph& graph, const SearchResult& result) {
  Json maps = Json::array(), layers = Json::array(), rejected = Json::array();
  for (const TunedMap& map : result.maps) {
    Json names = Json::array();
    for (int id : map.layers) names.push_back(graph.node(id).name);
    maps.push_back({{"geometry", Geometry(graph.node(map.node))},
                    {"mapping", map.mapping.spec},
                    {"ms", map.mapping.ms},
                    {"others", RunnersUp(map.others)},
                    {"layers", std::move(names)}});
  }
  for (const TunedLayer& layer : result.layers) {
    layers.push_back({{"geometry", Geometry(graph.node(layer.node))},
                      {"ms", layer.ms},
                      {"others", RunnersUp(layer.others)}});
  }
  for (const Rejected& entry : result.rejected) {
    rejected.push_back({{"at", entry.where}, {"spec", entry.spec}, {"reason", entry.reason}});
  }
  return {{"output_coords",
           {{"spec", result.output_coords.spec},
            {"ms", result.output_coords.ms},
            {"others", RunnersUp(result.other_output_coords)}}},
          {"maps", std::move(maps)},
          {"layers", std::move(layers)},
          {"rejected", std::move(rejected)},
          {"sum_ms", result.ms}};
}

Json ToJson(const std::vector<NetworkTime>& times) {
  Json list = Json::array();
  for (const NetworkTime& time : times) {
    Json& entry = list.emplace_back(Json{{"plan", time.name}, {"ms", nullptr}});
    if (time.rejected.empty()) {
      entry["ms"] = time.ms;
    } else {
      entry["rejected"] = time.rejected;
    }
  }
  return list;
}

std::vector<std::vector<std::string>> LayerTable(const NetworkGraph& graph,
                                                 const SearchResult& result) {
  const auto ms = [](double value) { return absl::StrFormat("%.4f", value); };
  std::vector<std::vector<std::string>> table = {
      {"layer", "channels", "mapping", "dataflow", "ms", "runner-up", "ms"}};
  for (const TunedLayer& layer : result.layers) {
    const Node& node = graph.node(layer.node);
    std::vector<std::string> row = {node.name,
                                    absl::StrCat(graph.InputChannels(node), "->", node.channels),
                                    layer.choice.mapping, layer.choice.dataflow, ms(layer.ms)};
    if (!layer.others.empty()) {
      row.push_back(layer.others[0].spec);
      row.push_back(ms(layer.others[0].ms));
    }
    table.push_back(std::move(row));
  }
  return table;
}

LayerChoice BestForAll(const SearchResult& result) {
  Sums mappings, dataflows;
  for (const TunedMap& map : result.maps) {
    mappings.Add(map.mapping.spec, map.mapping.ms);
    for (const Timed& other : map.others) mappings.Add(other.spec, other.ms);
  }
  for (const TunedLayer& layer : result.layers) {
    dataflows.Add(layer.choice.dataflow, layer.ms);
    for (const Timed& other : layer.others) dataflows.Add(other.spec, other.ms);
  }
  return {mappings.Least(result.maps.size()), dataflows.Least(result.layers.size()),
          result.output_coords.spec};
}

void TakeForAll(const LayerChoice& choice, SearchResult& result) {
  for (TunedMap& map : result.maps) Exchange(choice.mapping, map.mapping, map.others);
  for (TunedLayer& layer : result.layers) {
    Timed dataflow{layer.choice.dataflow, layer.ms};
    Exchange(choice.dataflow, dataflow, layer.others);
    layer.choice = choice;
    layer.ms = dataflow.ms;
  }
}

}  // namespace voxconv::tune
