// Measured search: for every layer of a network on one input, the mapping and dataflow that make
// it fastest, checked before they are timed.
#ifndef VOXCONV_TUNE_SEARCH_H_
#define VOXCONV_TUNE_SEARCH_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/coordinate_set.h"
#include "core/registry.h"
#include "networks/graph.h"
#include "networks/planner.h"
#include "tune/candidates.h"
#include "tune/race.h"

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
  // What candidates are held against on the whole input, and what is itself held against the fp64
  // reference on a crop of it (measure::Defaults).
  LayerChoice trusted;
  // Called after each part of the work; may be empty. RaceOptions::stop ends the search.
  std::function<void(int64_t done, int64_t total)> progress = nullptr;
};

struct Timed {
  std::string spec;
  double ms = 0;
};

// What failed its check or could not run, and why.
struct Rejected {
  std::string where;  // a layer
  std::string spec;
  std::string reason;
};

struct TunedLayer {
  int node = 0;
  LayerChoice choice;
  double ms = 0;              // of the dataflow with its epilogue, its map prepared
  std::vector<Timed> others;  // the other candidates, fastest first. The first may be faster than
                              // the choice, which then shares its prepared map with more
                              // layers.
};

struct TunedMap {
  int node = 0;  // the first layer
  // Index build and query, though maps of this mapping over the same inputs share the index.
  Timed mapping;
  std::vector<Timed> others;  // the same of the other candidates, fastest first
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

// kInternal where a trusted plugin fails its own check; kUnimplemented where a layer has no
// candidate that runs; kAborted when stopped. The candidate order, hence which of two equally fast
// ones is taken, is fixed.
absl::StatusOr<SearchResult> MeasuredSearch(const SearchSetup& setup);

// `status` with the place before its message.
absl::Status At(const std::string& place, const absl::Status& status);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_SEARCH_H_
