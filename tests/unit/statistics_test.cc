// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/statistics.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace voxconv::measure {
namespace {

using ::testing::HasSubstr;

TEST(StatisticsTest, QuantilesInterpolateBetweenOrderStatistics) {
  const std::vector<double> samples = {40, 10, 30, 20};
  EXPECT_DOUBLE_EQ(Quantile(samples, 0), 10);
  EXPECT_DOUBLE_EQ(Quantile(samples, 0.5), 25);
  EXPECT_DOUBLE_EQ(Quantile(samples, 1), 40);
  EXPECT_DOUBLE_EQ(Quantile({7.0}, 0.9), 7);
}

TEST(StatisticsTest, SummaryOfElevenValuesIsExact) {
  std::vector<double> samples;
  for (int i = 10; i >= 0; --i) samples.push_back(i);
  const Summary summary = Summarize(samples);
  EXPECT_DOUBLE_EQ(summary.median, 5);
  EXPECT_DOUBLE_EQ(summary.p10, 1);
  EXPECT_DOUBLE_EQ(summary.p90, 9);
}

// Times around `base` with an error common to the pair and a small one of its own.
void MakePairs(double factor, int n, std::vector<double>& a, std::vector<double>& b) {
  std::mt19937_64 engine(7);
  const auto uniform = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
  for (int i = 0; i < n; ++i) {
    const double common = 10 + 5 * uniform();
    a.push_back(common * (1 + 0.01 * uniform()));
    b.push_back(common * factor * (1 + 0.01 * uniform()));
  }
}

TEST(StatisticsTest, IntervalHoldsTheTrueRatioAndDrawsWholePairs) {
  std::vector<double> a, b;
  MakePairs(1.5, 40, a, b);
  const absl::StatusOr<Ratio> ratio = BootstrapRatio(a, b);
  ASSERT_TRUE(ratio.ok()) << ratio.status();
  EXPECT_NEAR(ratio->value, 1.5, 0.02);
  EXPECT_LT(ratio->low, 1.5);
  EXPECT_GT(ratio->high, 1.5);
  EXPECT_EQ(ratio->pairs, 40);
  // The common error of +-20 % would make an interval of unpaired samples several times as wide.
  EXPECT_LT(ratio->high - ratio->low, 0.06);
  EXPECT_EQ(Judge(*ratio), Verdict::kFaster);
}

TEST(StatisticsTest, SameSeedGivesTheSameInterval) {
  std::vector<double> a, b;
  MakePairs(1.1, 20, a, b);
  const Ratio first = *BootstrapRatio(a, b, {.seed = 3});
  const Ratio second = *BootstrapRatio(a, b, {.seed = 3});
  EXPECT_EQ(first.low, second.low);
  EXPECT_EQ(first.high, second.high);
}

TEST(StatisticsTest, ExactRatioGivesAnIntervalOfNoWidth) {
  const std::vector<double> a = {1, 2, 3, 4, 5, 6}, b = {2, 4, 6, 8, 10, 12};
  const Ratio ratio = *BootstrapRatio(a, b);
  EXPECT_DOUBLE_EQ(ratio.value, 2);
  EXPECT_DOUBLE_EQ(ratio.low, 2);
  EXPECT_DOUBLE_EQ(ratio.high, 2);
}

TEST(StatisticsTest, VerdictFollowsTheStatedRule) {
  EXPECT_EQ(Judge({1.50, 1.40, 1.60, 20}), Verdict::kFaster);
  EXPECT_EQ(Judge({0.70, 0.65, 0.75, 20}), Verdict::kSlower);
  EXPECT_EQ(Judge({1.20, 0.99, 1.40, 20}), Verdict::kNoDifference) << "interval holds 1";
  EXPECT_EQ(Judge({1.005, 1.003, 1.007, 20}), Verdict::kNoDifference) << "below 1 %";
  EXPECT_EQ(Judge({0.995, 0.993, 0.997, 20}), Verdict::kNoDifference) << "below 1 %";
  EXPECT_EQ(Judge({2.00, 2.00, 2.00, 5}), Verdict::kTooFewPairs);
}

TEST(StatisticsTest, BadSamplesAreRefusedByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(BootstrapRatio({}, {}).status().message(), HasSubstr("0 samples of A"));
  EXPECT_THAT(BootstrapRatio({1, 2}, {1}).status().message(), HasSubstr("1 of B"));
  EXPECT_THAT(BootstrapRatio({1, 0}, {1, 1}).status().message(), HasSubstr("sample 1 of A is 0"));
  EXPECT_THAT(BootstrapRatio({1, 1}, {nan, 1}).status().message(), HasSubstr("sample 0 of B"));
  EXPECT_THAT(BootstrapRatio({1}, {1}, {.resamples = 10}).status().message(),
              HasSubstr("resamples 10"));
  EXPECT_THAT(BootstrapRatio({1}, {1}, {.confidence = 1.0}).status().message(),
              HasSubstr("confidence 1"));
}

}  // namespace
}  // namespace voxconv::measure
