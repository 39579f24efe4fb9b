// Whole networks as work to time: for the threshold of the heuristic planner, and for what a plan
// is worth in the end.
#ifndef VOXCONV_TUNE_NETWORK_WORK_H_
#define VOXCONV_TUNE_NETWORK_WORK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "networks/executor.h"
#include "networks/planner.h"
#include "tune/race.h"
#include "tune/search.h"

namespace voxconv::tune {

// The network, with values for its parameters, and the input that all plans run on. References and
// pointers must outlive what is made from it.
struct NetworkSetup {
  const NetworkGraph& graph;
  const Registry& registry;
  const SparseTensor& input;
  RunConfig config;  // its planner is not used
  ExecutionContext context;
  Stopwatch stopwatch;
  RaceOptions race = {};
};

struct NamedPlan {
  std::string name;
  std::shared_ptr<const Planner> planner;
};

struct NetworkTime {
  std::string name;
  double ms = 0;         // of the whole network, maps included; infinite where it was rejected
  std::string rejected;  // why
};

// One entry a plan. Outputs are held against those of the first plan before anything is timed; that
// one must run.
absl::StatusOr<std::vector<NetworkTime>> TimeNetworks(const NetworkSetup& setup,
                                                      const std::vector<NamedPlan>& plans);

struct ThresholdResult {
  int64_t threshold = 0;
  double ms = 0;
  std::vector<NetworkTime> times;  // "threshold=64", ascending
};

// The threshold B of PCEngine's Algorithm 1 that gives the fastest network, of those that give
// different plans; the smallest of equals. `config` has the specs to choose between.
absl::StatusOr<ThresholdResult> TuneThreshold(const NetworkSetup& setup,
                                              HeuristicPlanner::Config config);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_NETWORK_WORK_H_
