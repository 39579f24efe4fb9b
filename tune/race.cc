// SPDX-License-Identifier: Apache-2.0
#include "voxconv/tune/race.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "voxconv/core/check.h"
#include "voxconv/measure/statistics.h"
#include "voxconv/measure/timer.h"

namespace voxconv::tune {
namespace {

constexpr double kShortestMs = 0.3;
constexpr int kMostRuns = 20;

absl::StatusOr<double> TimeRuns(const Contestant& contestant, int runs,
                                const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  const measure::Timer timer;
  for (int i = 0; i < runs; ++i) VOXCONV_RETURN_IF_ERROR(contestant.run());
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  return timer.Milliseconds() / runs;
}

double Median(const std::vector<double>& samples) { return measure::Quantile(samples, 0.5); }

class Runner {
 public:
  Runner(absl::Span<const Contestant> contestants, const Stopwatch& stopwatch)
      : contestants_(contestants),
        stopwatch_(stopwatch),
        finishes_(contestants.size()),
        samples_(contestants.size()),
        running_(contestants.size(), true) {}

  void Round(int round) {
    const int count = static_cast<int>(contestants_.size());
    for (int i = 0; i < count; ++i) Run((round + i) % count);
  }

  void DropSlow(double factor) {
    double leader = std::numeric_limits<double>::infinity();
    for (const std::vector<double>& samples : samples_) {
      if (!samples.empty()) leader = std::min(leader, Median(samples));
    }
    for (size_t i = 0; i < samples_.size(); ++i) {
      if (samples_[i].empty()) continue;
      const double fastest = *std::min_element(samples_[i].begin(), samples_[i].end());
      if (fastest > factor * leader) running_[i] = false;
    }
  }

  std::vector<Finish> Finishes() && {
    for (size_t i = 0; i < samples_.size(); ++i) {
      finishes_[i].rounds = static_cast<int>(samples_[i].size());
      finishes_[i].ms = !finishes_[i].status.ok() || samples_[i].empty()
                            ? std::numeric_limits<double>::infinity()
                            : Median(samples_[i]);
    }
    return std::move(finishes_);
  }

 private:
  void Run(int i) {
    if (!running_[i]) return;
    const absl::StatusOr<double> ms = stopwatch_(contestants_[i]);
    if (ms.ok()) {
      samples_[i].push_back(*ms);
      return;
    }
    running_[i] = false;
    finishes_[i].status = ms.status();
    samples_[i].clear();
  }

  absl::Span<const Contestant> contestants_;
  const Stopwatch& stopwatch_;
  std::vector<Finish> finishes_;
  std::vector<std::vector<double>> samples_;
  std::vector<bool> running_;
};

}  // namespace

Stopwatch WallStopwatch(const ExecutionContext& context) {
  return [context](const Contestant& contestant) -> absl::StatusOr<double> {
    if (contestant.prepare) VOXCONV_RETURN_IF_ERROR(contestant.prepare());
    VOXCONV_ASSIGN_OR_RETURN(const double once, TimeRuns(contestant, 1, context));
    if (once >= kShortestMs || !contestant.repeatable) return once;
    const int runs = once <= 0 ? kMostRuns : static_cast<int>(std::ceil(kShortestMs / once));
    return TimeRuns(contestant, std::min(runs, kMostRuns), context);
  };
}

std::vector<Finish> Race(absl::Span<const Contestant> contestants, const RaceOptions& options,
                         const Stopwatch& stopwatch) {
  VOXCONV_CHECK(options.repeats >= 1);
  Runner runner(contestants, stopwatch);
  for (int round = 0; round < options.repeats; ++round) {
    if (round > 0 && options.stop && options.stop()) break;
    runner.Round(round);
    runner.DropSlow(round == 0 ? 2 * options.drop_factor : options.drop_factor);
  }
  return std::move(runner).Finishes();
}

}  // namespace voxconv::tune
