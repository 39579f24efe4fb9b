// SPDX-License-Identifier: Apache-2.0
// The result of a search as a plan file and as a table.
#ifndef VOXCONV_TUNE_PLAN_RECORD_H_
#define VOXCONV_TUNE_PLAN_RECORD_H_

#include <string>
#include <vector>

#include "voxconv/measure/plan_file.h"
#include "voxconv/tune/network_work.h"
#include "voxconv/tune/search.h"

namespace voxconv::tune {

// The layers' choices, for a plan file and for a planner.
std::vector<PlannedLayer> PlannedLayers(const NetworkGraph& graph, const SearchResult& result);
std::vector<PlannedLayer> PlannedLayers(const NetworkGraph& graph,
                                        const std::vector<LayerChoice>& choices);

// The times behind the choices: "output_coords", "maps", "layers", "rejected", "sum_ms".
measure::Json Details(const NetworkGraph& graph, const SearchResult& result);
measure::Json ToJson(const std::vector<NetworkTime>& times);

// One line for each layer: the choice, its time, and the runner-up with its time.
std::vector<std::vector<std::string>> LayerTable(const NetworkGraph& graph,
                                                 const SearchResult& result);

// The mapping and the dataflow that have the least sum of times if all layers take them. Choosing
// layer by layer is compared with this. A spec is empty if no plugin ran in all layers.
LayerChoice BestForAll(const SearchResult& result);

// Sets the choice of all maps and layers of the result to `choice`, which must have run in all of
// them (BestForAll).
void TakeForAll(const LayerChoice& choice, SearchResult& result);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_PLAN_RECORD_H_
