// SPDX-License-Identifier: Apache-2.0
// Interleaved runs of two configurations on the same work, and their comparison.
#ifndef VOXCONV_MEASURE_PAIRED_H_
#define VOXCONV_MEASURE_PAIRED_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/profile.h"
#include "voxconv/measure/statistics.h"

namespace voxconv::measure {

// One run, from input features to output features.
struct Measurement {
  double wall_ms = 0;  // steady clock around the whole run and a synchronisation of the stream
  Profile profile;
};
using RunOnce = std::function<absl::StatusOr<Measurement>()>;

inline constexpr int kMinPairs = 20;

struct PairedOptions {
  int pairs = kMinPairs;  // at least kMinPairs in all rounds together
  int rounds = 1;         // how many such runs, each in a process of its own, count as one
  bool quick = false;     // allows 1 pair and more, for runs that only show that all works
  int warmup = 2;         // runs of each side before the first pair; at least 0
  // Called before each run, the warm-up included, and not timed. Its error ends the measurement.
  // May be empty.
  std::function<absl::Status()> prepare;
  // Called after each run, the warm-up included; may be empty.
  std::function<void(int64_t done, int64_t total)> progress;
  // Called before each pair. True ends the measurement with the pairs so far. May be empty.
  std::function<bool()> stop;
};

struct PairedSamples {
  std::vector<Measurement> a, b;  // one entry a pair
  bool stopped = false;           // before all pairs were run
};

// kInvalidArgument gives a number of pairs or of warm-up runs that is not allowed.
absl::Status CheckOptions(const PairedOptions& options);

// Warms both sides up, then runs A B | B A | A B ... Pairs keep slow drifts (clocks, heat, other
// load) out of the ratio. The changing order keeps out what the first run of a pair does to the
// second. Returns the first error of either side.
absl::StatusOr<PairedSamples> PairedRun(const RunOnce& a, const RunOnce& b,
                                        const PairedOptions& options);

// Times in milliseconds. `ratio` says how many times faster A is. It is absent if a run has no such
// time.
struct TimeComparison {
  Summary a, b;
  std::optional<Ratio> ratio;
};

// Compares the sums of these stages, run by run.
TimeComparison CompareStages(const PairedSamples& samples, absl::Span<const Stage> stages,
                             const BootstrapOptions& options = {});

struct Comparison {
  std::array<TimeComparison, kNumStages> stages;
  TimeComparison wall;
  Counters counters_a, counters_b;  // of the first pair
  int64_t pairs = 0;
  bool stopped = false;
  Verdict verdict = Verdict::kTooFewPairs;  // on wall times
};

// Compares wall times and every stage. kFailedPrecondition if there is no pair.
absl::StatusOr<Comparison> Compare(const PairedSamples& samples,
                                   const BootstrapOptions& options = {});

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_PAIRED_H_
