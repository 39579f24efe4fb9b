// SPDX-License-Identifier: Apache-2.0
// Times several ways to do the same work. Their runs are interleaved.
#ifndef VOXCONV_TUNE_RACE_H_
#define VOXCONV_TUNE_RACE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/backend.h"

namespace voxconv::tune {

struct Contestant {
  std::string name;
  std::function<absl::Status()> run;  // queues the work once
  // Called before the runs of a round. Not timed. May be empty.
  std::function<absl::Status()> prepare = nullptr;
  bool repeatable = true;  // whether `run` may follow itself without `prepare`
};

// Returns the milliseconds of one run. Tests give times of their own.
using Stopwatch = std::function<absl::StatusOr<double>(const Contestant&)>;

// Measures wall time, and synchronises the stream before it reads the clock. Work that is short
// compared with the cost of waiting is queued several times before the clock is read, as a network
// queues its layers. Work that is not `repeatable` is timed one run at a time. The context's
// backend must outlive the stopwatch.
Stopwatch WallStopwatch(const ExecutionContext& context);

struct RaceOptions {
  int repeats = 9;  // rounds, at least 1; the result is their median
  // A contestant drops out if its fastest run takes longer than this factor times the leader's
  // median. After the first round the factor is twice that, because one run may have been
  // disturbed. It then keeps the median of the rounds that it ran.
  double drop_factor = 1.5;
  // Called before each round but the first. True ends the race. May be empty.
  std::function<bool()> stop;
};

struct Finish {
  double ms = 0;  // median; infinite if a run failed
  int rounds = 0;
  absl::Status status;  // of the run that failed
};

// Returns one entry for each contestant. Each round runs all contestants that are left, and starts
// with another one. Drifts, and effects of one run on the next, are thus spread over all.
std::vector<Finish> Race(absl::Span<const Contestant> contestants, const RaceOptions& options,
                         const Stopwatch& stopwatch);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_RACE_H_
