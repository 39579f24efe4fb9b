// SPDX-License-Identifier: Apache-2.0
#include "voxconv/tune/network_work.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/measure/network_frame.h"
#include "voxconv/measure/statistics.h"
#include "voxconv/networks/tuning.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/network_bound.h"

namespace voxconv::tune {
namespace {

absl::StatusOr<std::unique_ptr<NetworkRunner>> MakeRunner(const NetworkSetup& setup,
                                                          const NamedPlan& plan) {
  RunConfig config = setup.config;
  config.planner = plan.planner;
  // Events between the stages would cost a device more than many a stage.
  config.profile_stages = false;
  return NetworkRunner::Create(setup.graph, config, setup.registry, *setup.context.backend);
}

absl::StatusOr<std::vector<float>> OutputOf(NetworkRunner& runner, const NetworkSetup& setup) {
  VOXCONV_ASSIGN_OR_RETURN(const RunResult result, runner.Run(setup.input.view()));
  return result.output.features().ToHost(setup.context);
}

absl::Status CheckOutput(NetworkRunner& runner, const NetworkSetup& setup,
                         const reference::Fp64Array& expected) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output, OutputOf(runner, setup));
  const double bound = verify::NetworkBound(setup.graph, setup.config.precision);
  return verify::CompareOutputs(output, expected, bound, "the first plan").status();
}

}  // namespace

absl::StatusOr<std::vector<NetworkTime>> TimeNetworks(const NetworkSetup& setup,
                                                      const std::vector<NamedPlan>& plans) {
  std::vector<NetworkTime> times;
  std::vector<std::unique_ptr<NetworkRunner>> runners;
  std::vector<Contestant> contestants;
  std::vector<size_t> plan_of;
  reference::Fp64Array expected;
  for (size_t i = 0; i < plans.size(); ++i) {
    times.push_back({plans[i].name, kNoTime, ""});
    absl::StatusOr<std::unique_ptr<NetworkRunner>> runner = MakeRunner(setup, plans[i]);
    absl::Status status = runner.status();
    if (i == 0) {
      VOXCONV_RETURN_IF_ERROR(status);
      VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output, OutputOf(**runner, setup));
      expected = output;
    } else if (status.ok()) {
      status = CheckOutput(**runner, setup, expected);
    }
    if (!status.ok()) {
      times[i].rejected = std::string(status.message());
      continue;
    }
    runners.push_back(*std::move(runner));
    plan_of.push_back(i);
    contestants.push_back({plans[i].name, [runner = runners.back().get(), &setup] {
                             return runner->Run(setup.input.view()).status();
                           }});
  }
  const std::vector<Finish> finishes = Race(contestants, setup.race, setup.stopwatch);
  for (size_t i = 0; i < finishes.size(); ++i) {
    NetworkTime& time = times[plan_of[i]];
    time.ms = finishes[i].ms;
    time.rejected = std::string(finishes[i].status.message());
  }
  return times;
}

size_t PlanToTake(const std::vector<NetworkTime>& times, size_t first,
                  absl::Span<const size_t> others) {
  size_t taken = first;
  for (const size_t other : others) {
    if (times[other].ms < (1 - measure::kSmallestDifference) * times[taken].ms) taken = other;
  }
  return taken;
}

absl::StatusOr<ThresholdResult> TuneThreshold(const NetworkSetup& setup,
                                              HeuristicPlanner::Config config) {
  const std::vector<int64_t> thresholds = ThresholdCandidates(setup.graph);
  std::vector<NamedPlan> plans;
  for (int64_t threshold : thresholds) {
    config.channel_threshold = threshold;
    plans.push_back(
        {absl::StrCat("threshold=", threshold), std::make_shared<HeuristicPlanner>(config)});
  }
  VOXCONV_ASSIGN_OR_RETURN(std::vector<NetworkTime> times, TimeNetworks(setup, plans));
  ThresholdResult result{.ms = kNoTime, .times = std::move(times)};
  for (size_t i = 0; i < thresholds.size(); ++i) {
    if (result.times[i].ms >= result.ms) continue;
    result.threshold = thresholds[i];
    result.ms = result.times[i].ms;
  }
  if (result.ms < kNoTime) return result;
  return absl::InternalError(absl::StrCat("no threshold runs: ", result.times[0].rejected));
}

}  // namespace voxconv::tune
