// What a search found, as a plan file and as a table.
#ifndef VOXCONV_TUNE_PLAN_RECORD_H_
#define VOXCONV_TUNE_PLAN_RECORD_H_

#include <string>
#include <vector>

#include "measure/plan_file.h"
#include "tune/network_work.h"
#include "tune/search.h"

namespace voxconv::tune {

// The layers' choices, for a plan file and for a planner.
std::vector<PlannedLayer> PlannedLayers(const NetworkGraph& graph, const SearchResult& result);
std::vector<PlannedLayer> PlannedLayers(const NetworkGraph& graph,
                                        const std::vector<LayerChoice>& choices);

// The times behind the choices: "output_coords", "maps", "layers", "rejected", "sum_ms".
measure::Json Details(const NetworkGraph& graph, const SearchResult& result);
measure::Json ToJson(const std::vector<NetworkTime>& times);

// A line a layer: what was chosen, its time, and the runner-up with its time.
std::vector<std::vector<std::string>> LayerTable(const NetworkGraph& graph,
                                                 const SearchResult& result);

// The one mapping and the one dataflow that, taken for all layers, have the least sum of times:
// what choosing layer by layer is worth is measured against it. Empty specs where none ran
// everywhere.
LayerChoice BestForAll(const SearchResult& result);

// Takes `choice`, which has run everywhere (BestForAll), for all maps and layers of the result.
void TakeForAll(const LayerChoice& choice, SearchResult& result);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_PLAN_RECORD_H_
