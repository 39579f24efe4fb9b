// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/paired.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"

namespace voxconv::measure {
namespace {

template <typename Time>
TimeComparison CompareTimes(const PairedSamples& samples, const BootstrapOptions& options,
                            Time time) {
  std::vector<double> a, b;
  for (const Measurement& m : samples.a) a.push_back(time(m));
  for (const Measurement& m : samples.b) b.push_back(time(m));
  TimeComparison result{Summarize(a), Summarize(b), std::nullopt};
  // A stage that one side does not have leaves zeros, of which there is no ratio.
  if (absl::StatusOr<Ratio> ratio = BootstrapRatio(a, b, options); ratio.ok()) {
    result.ratio = *ratio;
  }
  return result;
}

}  // namespace

absl::Status CheckOptions(const PairedOptions& options) {
  const int rounds = std::max(options.rounds, 1);
  const int fewest = options.quick ? 1 : (kMinPairs + rounds - 1) / rounds;
  constexpr int kMostPairs = 1000000;  // at 1 ms a run they take half an hour
  if (options.pairs < fewest || options.pairs > kMostPairs) {
    return absl::InvalidArgumentError(
        absl::StrCat("pairs ", options.pairs, ": allowed are ", fewest, " .. ", kMostPairs,
                     rounds > 1 ? absl::StrCat(" in each of ", rounds, " rounds") : ""));
  }
  if (options.warmup < 0 || options.warmup > kMostPairs) {
    return absl::InvalidArgumentError(
        absl::StrCat("warmup ", options.warmup, ": allowed are 0 .. ", kMostPairs));
  }
  return absl::OkStatus();
}

absl::StatusOr<PairedSamples> PairedRun(const RunOnce& a, const RunOnce& b,
                                        const PairedOptions& options) {
  VOXCONV_RETURN_IF_ERROR(CheckOptions(options));
  const int64_t total = 2 * (int64_t{options.warmup} + options.pairs);
  int64_t done = 0;
  const auto run = [&](const RunOnce& once) -> absl::StatusOr<Measurement> {
    if (options.prepare) VOXCONV_RETURN_IF_ERROR(options.prepare());
    absl::StatusOr<Measurement> measurement = once();
    if (measurement.ok() && options.progress) options.progress(++done, total);
    return measurement;
  };
  const auto stop = [&] { return options.stop && options.stop(); };

  PairedSamples samples;
  for (int i = 0; i < options.warmup && !stop(); ++i) {
    VOXCONV_RETURN_IF_ERROR(run(a).status());
    VOXCONV_RETURN_IF_ERROR(run(b).status());
  }
  for (int i = 0; i < options.pairs; ++i) {
    if (stop()) {
      samples.stopped = true;
      break;
    }
    const bool a_first = i % 2 == 0;
    VOXCONV_ASSIGN_OR_RETURN(Measurement first, run(a_first ? a : b));
    VOXCONV_ASSIGN_OR_RETURN(Measurement second, run(a_first ? b : a));
    samples.a.push_back(a_first ? first : second);
    samples.b.push_back(a_first ? second : first);
  }
  return samples;
}

TimeComparison CompareStages(const PairedSamples& samples, absl::Span<const Stage> stages,
                             const BootstrapOptions& options) {
  return CompareTimes(samples, options, [stages](const Measurement& m) {
    double sum = 0;
    for (Stage stage : stages) sum += m.profile.Time(stage);
    return sum;
  });
}

absl::StatusOr<Comparison> Compare(const PairedSamples& samples, const BootstrapOptions& options) {
  if (samples.a.empty() || samples.a.size() != samples.b.size()) {
    return absl::FailedPreconditionError("no pair was measured");
  }
  Comparison result;
  for (int i = 0; i < kNumStages; ++i) {
    result.stages[i] = CompareTimes(
        samples, options, [i](const Measurement& m) { return m.profile.milliseconds[i]; });
  }
  result.wall = CompareTimes(samples, options, [](const Measurement& m) { return m.wall_ms; });
  result.counters_a = samples.a.front().profile.counters;
  result.counters_b = samples.b.front().profile.counters;
  result.pairs = static_cast<int64_t>(samples.a.size());
  result.stopped = samples.stopped;
  if (result.wall.ratio.has_value()) result.verdict = Judge(*result.wall.ratio);
  return result;
}

}  // namespace voxconv::measure
