// Timing several ways to do the same work, interleaved.
#ifndef VOXCONV_TUNE_RACE_H_
#define VOXCONV_TUNE_RACE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/backend.h"

namespace voxconv::tune {

struct Contestant {
  std::string name;
  std::function<absl::Status()> run;  // queues the work once
  // Before the runs of a round, not timed; may be empty.
  std::function<absl::Status()> prepare = nullptr;
  bool repeatable = true;  // whether `run` may follow itself without `prepare`
};

// Milliseconds of one run. Tests hand in times of their own.
using Stopwatch = std::function<absl::StatusOr<double>(const Contestant&)>;

// Wall time, the stream synchronised at the end. Work that is too short for the clock and for the
// cost of waiting is queued several times between two looks at it, as a network queues its layers;
// work with `prepare` is timed alone. `context`'s backend must outlive the stopwatch.
Stopwatch WallStopwatch(const ExecutionContext& context);

struct RaceOptions {
  int repeats = 9;  // rounds, 1 or more; the median of them counts
  // A contestant whose fastest run takes more than this times the leader's median (twice that after
  // the first round, when one hiccup is all there is) drops out and keeps the median of the rounds
  // that it ran.
  double drop_factor = 1.5;
  // Asked before each round after the first; true ends the race. May be empty.
  std::function<bool()> stop;
};

struct Finish {
  double ms = 0;  // median; infinite where a run failed
  int rounds = 0;
  absl::Status status;  // of the run that failed
};

// One entry a contestant. Rounds run all of those left, each starting with another, so that drifts
// and what one does to the next spread over all.
std::vector<Finish> Race(absl::Span<const Contestant> contestants, const RaceOptions& options,
                         const Stopwatch& stopwatch);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_RACE_H_
