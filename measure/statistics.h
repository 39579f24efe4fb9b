// SPDX-License-Identifier: Apache-2.0
// Medians, percentiles, and the paired bootstrap that gives every printed ratio its interval.
#ifndef VOXCONV_MEASURE_STATISTICS_H_
#define VOXCONV_MEASURE_STATISTICS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace voxconv::measure {

// The p-quantile, 0 <= p <= 1, by linear interpolation between order statistics. `samples` must
// not be empty (checked). O(n log n).
double Quantile(absl::Span<const double> samples, double p);

struct Summary {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
};
// `samples` must not be empty (checked).
Summary Summarize(absl::Span<const double> samples);

struct BootstrapOptions {
  int resamples = 4000;  // at least 2000
  double confidence = 0.95;
  uint64_t seed = 1;
};

// How many times faster A is than B: median(b) / median(a), with a percentile interval.
struct Ratio {
  double value = 1;
  double low = 1;
  double high = 1;
  int64_t pairs = 0;
};

// Paired bootstrap of median(b) / median(a) (Efron and Tibshirani, An Introduction to the
// Bootstrap, 1993). It draws whole pairs, so that a disturbance of both runs of a pair cancels. The
// same samples and seed give the same interval. kInvalidArgument if there are no samples or
// different numbers of them, for a sample that is not positive and finite, for fewer than 2000
// resamples, and for a confidence outside (0, 1). O(resamples * pairs).
absl::StatusOr<Ratio> BootstrapRatio(absl::Span<const double> a, absl::Span<const double> b,
                                     const BootstrapOptions& options = {});

enum class Verdict { kFaster, kSlower, kNoDifference, kTooFewPairs };

// A verdict on a difference needs at least this many pairs. With fewer, all pairs point the same
// way by chance more often than once in 20 (2^(1-n) < 0.05 from n = 6 on).
inline constexpr int64_t kMinPairsForVerdict = 6;
// It also needs medians that differ by more than this share, because the layout and alignment of
// code and data alone can change a time by as much.
inline constexpr double kSmallestDifference = 0.01;

// The verdict on A against B. It is "faster" or "slower" if the interval excludes 1 and the ratio,
// or its inverse if it is below 1, exceeds 1 + kSmallestDifference.
Verdict Judge(const Ratio& ratio);

// "faster", "slower", "no difference", "too few pairs".
absl::string_view ToString(Verdict verdict);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_STATISTICS_H_
