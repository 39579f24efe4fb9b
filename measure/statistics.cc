// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/check.h"
#include "voxconv/core/random.h"

namespace voxconv::measure {
namespace {

double QuantileOfSorted(absl::Span<const double> sorted, double p) {
  const double position = p * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = position - static_cast<double>(below);
  return sorted[below] * (1 - weight) + sorted[above] * weight;
}

// In place, O(n): the bootstrap takes thousands of them.
double MedianInPlace(std::vector<double>& values) {
  const size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + half, values.end());
  if (values.size() % 2 == 1) return values[half];
  const double below = *std::max_element(values.begin(), values.begin() + half);
  return (below + values[half]) / 2;
}

absl::Status CheckSamples(absl::string_view name, absl::Span<const double> samples) {
  for (size_t i = 0; i < samples.size(); ++i) {
    if (std::isfinite(samples[i]) && samples[i] > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("sample ", i, " of ", name, " is ", samples[i],
                                                   "; allowed are positive finite times"));
  }
  return absl::OkStatus();
}

absl::Status CheckArguments(absl::Span<const double> a, absl::Span<const double> b,
                            const BootstrapOptions& options) {
  if (a.empty() || a.size() != b.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        a.size(), " samples of A and ", b.size(), " of B; pairs need as many of each, at least 1"));
  }
  if (options.resamples < 2000) {
    return absl::InvalidArgumentError(
        absl::StrCat("resamples ", options.resamples, ": allowed are 2000 and more"));
  }
  if (!(options.confidence > 0 && options.confidence < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("confidence ", options.confidence, ": allowed are values between 0 and 1"));
  }
  if (absl::Status status = CheckSamples("A", a); !status.ok()) return status;
  return CheckSamples("B", b);
}

}  // namespace

double Quantile(absl::Span<const double> samples, double p) {
  VOXCONV_CHECK(!samples.empty() && p >= 0 && p <= 1);
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return QuantileOfSorted(sorted, p);
}

Summary Summarize(absl::Span<const double> samples) {
  VOXCONV_CHECK(!samples.empty());
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return {QuantileOfSorted(sorted, 0.5), QuantileOfSorted(sorted, 0.1),
          QuantileOfSorted(sorted, 0.9)};
}

absl::StatusOr<Ratio> BootstrapRatio(absl::Span<const double> a, absl::Span<const double> b,
                                     const BootstrapOptions& options) {
  if (absl::Status status = CheckArguments(a, b, options); !status.ok()) return status;
  const size_t n = a.size();
  Random random(options.seed);
  std::vector<double> drawn_a(n), drawn_b(n), ratios(options.resamples);
  for (double& ratio : ratios) {
    for (size_t i = 0; i < n; ++i) {
      const size_t pair = random.Below(n);
      drawn_a[i] = a[pair];
      drawn_b[i] = b[pair];
    }
    ratio = MedianInPlace(drawn_b) / MedianInPlace(drawn_a);
  }
  std::sort(ratios.begin(), ratios.end());
  const double tail = (1 - options.confidence) / 2;
  Ratio result;
  result.value = Quantile(b, 0.5) / Quantile(a, 0.5);
  result.low = QuantileOfSorted(ratios, tail);
  result.high = QuantileOfSorted(ratios, 1 - tail);
  result.pairs = static_cast<int64_t>(n);
  return result;
}

Verdict Judge(const Ratio& ratio) {
  if (ratio.pairs < kMinPairsForVerdict) return Verdict::kTooFewPairs;
  if (ratio.low > 1 && ratio.value > 1 + kSmallestDifference) return Verdict::kFaster;
  if (ratio.high < 1 && 1 / ratio.value > 1 + kSmallestDifference) return Verdict::kSlower;
  return Verdict::kNoDifference;
}

absl::string_view ToString(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFaster:
      return "faster";
    case Verdict::kSlower:
      return "slower";
    case Verdict::kNoDifference:
      return "no difference";
    case Verdict::kTooFewPairs:
      return "too few pairs";
  }
  return "?";
}

}  // namespace voxconv::measure
