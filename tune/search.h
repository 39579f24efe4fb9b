// SPDX-License-Identifier: Apache-2.0
// Measured search. For every layer of a network on one input, it finds the mapping and the dataflow
// that make it fastest. Candidates are checked before they are timed.
#ifndef VOXCONV_TUNE_SEARCH_H_
#define VOXCONV_TUNE_SEARCH_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/registry.h"
#include "voxconv/networks/graph.h"
#include "voxconv/networks/planner.h"
#include "voxconv/tune/candidates.h"
#include "voxconv/tune/race.h"

namespace voxconv::tune {

// References must outlive the search.
struct SearchSetup {
  const NetworkGraph& graph;
  const Registry& registry;
  CoordinateSetPtr coordinates;
  Precision precision = Precision::kF32;
  Candidates candidates;
  ExecutionContext context;
  Stopwatch stopwatch;
  RaceOptions race = {};
  // Outputs of candidates on the whole input are compared with those of these plugins, which are
  // themselves checked against the fp64 reference on a crop (measure::Defaults).
  LayerChoice trusted;
  // Called after each part of the work; may be empty. RaceOptions::stop ends the search.
  std::function<void(int64_t done, int64_t total)> progress = nullptr;
};

struct Timed {
  std::string spec;
  double ms = 0;
};

// A candidate that failed its check or could not run.
struct Rejected {
  std::string where;  // a layer
  std::string spec;
  std::string reason;
};

struct TunedLayer {
  int node = 0;
  LayerChoice choice;
  double ms = 0;              // of the dataflow with its epilogue, its map prepared
  std::vector<Timed> others;  // the other candidates, fastest first, also those that were too slow
                              // to be checked. The first may be faster than the choice, which then
                              // shares its prepared map with more layers.
};

struct TunedMap {
  int node = 0;  // the first layer
  // Index build and query, though maps of this mapping over the same inputs share the index.
  Timed mapping;
  std::vector<Timed> others;  // the same of the other candidates that passed, fastest first
  std::vector<int> layers;
};

struct SearchResult {
  std::vector<TunedLayer> layers;  // all convolutions with a map, by node
  std::vector<TunedMap> maps;
  Timed output_coords;  // all sets of the network
  std::vector<Timed> other_output_coords;
  std::vector<Rejected> rejected;
  double ms = 0;  // output coordinates, maps, conversions and these layers
};

// Searches. The order of candidates is fixed, and of equally fast ones the first is taken.
// kInternal if a trusted plugin fails its own check. kUnimplemented if a layer has no candidate
// that runs. kAborted if RaceOptions::stop ended the search.
absl::StatusOr<SearchResult> MeasuredSearch(const SearchSetup& setup);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_SEARCH_H_
