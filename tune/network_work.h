// SPDX-License-Identifier: Apache-2.0
// Times whole networks, to find the threshold of the heuristic planner, and to compare a tuned plan
// with others.
#ifndef VOXCONV_TUNE_NETWORK_WORK_H_
#define VOXCONV_TUNE_NETWORK_WORK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/networks/executor.h"
#include "voxconv/networks/planner.h"
#include "voxconv/tune/race.h"
#include "voxconv/tune/search.h"

namespace voxconv::tune {

// The network, whose parameters have values, and the input that all plans run on. What the
// references and pointers refer to must outlive the setup and all that is made of it.
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
  double ms = 0;         // of the whole network, maps included; infinite if it was rejected
  std::string rejected;  // the reason
};

// Returns one entry for each plan. The first plan must run. The outputs of the others are compared
// with its output before anything is timed.
absl::StatusOr<std::vector<NetworkTime>> TimeNetworks(const NetworkSetup& setup,
                                                      const std::vector<NamedPlan>& plans);

// Which of `times` to take: `first`, unless one of `others` is faster than what was taken so far by
// more than measure::kSmallestDifference. They are asked in their order.
size_t PlanToTake(const std::vector<NetworkTime>& times, size_t first,
                  absl::Span<const size_t> others);

struct ThresholdResult {
  int64_t threshold = 0;
  double ms = 0;
  std::vector<NetworkTime> times;  // "threshold=64", ascending
};

// Finds the threshold B of PCEngine's Algorithm 1 that gives the fastest network. Tries one
// threshold for each different plan (ThresholdCandidates). Of equally fast ones it takes the
// smallest. `config` has the specs to choose between.
absl::StatusOr<ThresholdResult> TuneThreshold(const NetworkSetup& setup,
                                              HeuristicPlanner::Config config);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_NETWORK_WORK_H_
