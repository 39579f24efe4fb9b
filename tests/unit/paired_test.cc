// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/paired.h"

#include <csignal>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/measure/interrupt.h"

namespace voxconv::measure {
namespace {

using ::testing::HasSubstr;

// Records the order of the runs; each takes `ms`, spent in the stage kGemm.
RunOnce Fake(char name, double ms, std::string& order) {
  return [name, ms, &order]() -> absl::StatusOr<Measurement> {
    order += name;
    Measurement m;
    m.wall_ms = ms;
    m.profile.AddTime(Stage::kGemm, ms / 2);
    m.profile.counters.launches = name == 'A' ? 1 : 27;
    return m;
  };
}

TEST(PairedRunTest, WarmsUpThenInterleavesInChangingOrder) {
  std::string order;
  int64_t last_done = 0, last_total = 0;
  PairedOptions options;
  options.progress = [&](int64_t done, int64_t total) {
    last_done = done;
    last_total = total;
  };
  const auto samples = PairedRun(Fake('A', 1, order), Fake('B', 2, order), options);
  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_EQ(order.substr(0, 12), "ABABABBAABBA");
  EXPECT_EQ(order.size(), 44u);
  EXPECT_EQ(samples->a.size(), 20u);
  EXPECT_EQ(samples->b.back().wall_ms, 2) << "swapped pairs are put back in order";
  EXPECT_FALSE(samples->stopped);
  EXPECT_EQ(last_done, 44);
  EXPECT_EQ(last_total, 44);
}

TEST(PairedRunTest, PreparesEachRun) {
  std::string order;
  PairedOptions options;
  options.prepare = [&] {
    order += '-';
    return absl::OkStatus();
  };
  const auto samples = PairedRun(Fake('A', 1, order), Fake('B', 2, order), options);
  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_EQ(order.substr(0, 16), "-A-B-A-B-A-B-B-A");
  options.prepare = [] { return absl::InternalError("the cache stays"); };
  EXPECT_EQ(PairedRun(Fake('A', 1, order), Fake('B', 2, order), options).status().message(),
            "the cache stays");
}

TEST(PairedRunTest, StopKeepsThePairsSoFar) {
  std::string order;
  PairedOptions options;
  options.stop = [&] { return order.size() >= 4 + 2 * 7; };
  const auto samples = PairedRun(Fake('A', 1, order), Fake('B', 2, order), options);
  ASSERT_TRUE(samples.ok());
  EXPECT_TRUE(samples->stopped);
  EXPECT_EQ(samples->a.size(), 7u);
  EXPECT_EQ(samples->b.size(), 7u);
}

TEST(PairedRunTest, InterruptIsSeenOnceAndForgottenAfterwards) {
  {
    InterruptGuard guard;
    EXPECT_FALSE(guard.interrupted());
    std::raise(SIGINT);
    EXPECT_TRUE(guard.interrupted());
  }
  InterruptGuard guard;
  EXPECT_FALSE(guard.interrupted());
}

TEST(PairedRunTest, QuickAllowsFewerPairsOfWhichNoVerdictIsMade) {
  std::string order;
  const auto samples =
      PairedRun(Fake('A', 1, order), Fake('B', 2, order), {.pairs = 2, .quick = true});
  ASSERT_TRUE(samples.ok()) << samples.status();
  const auto comparison = Compare(*samples);
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_EQ(comparison->verdict, Verdict::kTooFewPairs);
  EXPECT_THAT(PairedRun(Fake('A', 1, order), Fake('B', 2, order), {.pairs = 0, .quick = true})
                  .status()
                  .message(),
              HasSubstr("pairs 0"));
}

TEST(PairedRunTest, SeveralRoundsShareThePairsThatAreNeeded) {
  EXPECT_TRUE(CheckOptions({.pairs = 4, .rounds = 5}).ok());
  EXPECT_TRUE(CheckOptions({.pairs = 7, .rounds = 3}).ok());
  EXPECT_EQ(CheckOptions({.pairs = 3, .rounds = 5}).message(),
            "pairs 3: allowed are 4 .. 1000000 in each of 5 rounds");
  EXPECT_EQ(CheckOptions({.pairs = 19}).message(), "pairs 19: allowed are 20 .. 1000000");
}

TEST(PairedRunTest, StagesAreComparedTogether) {
  std::string order;
  const auto samples = PairedRun(Fake('A', 1, order), Fake('B', 4, order), {});
  ASSERT_TRUE(samples.ok()) << samples.status();
  const TimeComparison both = CompareStages(*samples, {Stage::kGemm, Stage::kScatter});
  EXPECT_EQ(both.a.median, 0.5);
  ASSERT_TRUE(both.ratio.has_value());
  EXPECT_EQ(both.ratio->value, 4);
  EXPECT_FALSE(CompareStages(*samples, {Stage::kScatter}).ratio.has_value());
}

TEST(PairedRunTest, RefusesTooFewPairsAndPassesErrorsOn) {
  std::string order;
  const RunOnce good = Fake('A', 1, order);
  const RunOnce bad = []() -> absl::StatusOr<Measurement> {
    return absl::ResourceExhaustedError("no memory left");
  };
  EXPECT_THAT(PairedRun(good, good, {.pairs = 19}).status().message(), HasSubstr("pairs 19"));
  EXPECT_THAT(PairedRun(good, good, {.warmup = -1}).status().message(), HasSubstr("warmup -1"));
  EXPECT_THAT(PairedRun(good, bad, {}).status().message(), HasSubstr("no memory left"));
}

TEST(CompareTest, GivesTimesByStageAndTheVerdictOnWallTime) {
  std::string order;
  const auto samples = PairedRun(Fake('A', 1, order), Fake('B', 2, order), {});
  const auto comparison = Compare(*samples);
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_EQ(comparison->verdict, Verdict::kFaster);
  EXPECT_DOUBLE_EQ(comparison->wall.ratio->value, 2);
  const TimeComparison& gemm = comparison->stages[static_cast<int>(Stage::kGemm)];
  EXPECT_DOUBLE_EQ(gemm.a.median, 0.5);
  EXPECT_DOUBLE_EQ(gemm.b.median, 1);
  ASSERT_TRUE(gemm.ratio.has_value());
  EXPECT_FALSE(comparison->stages[static_cast<int>(Stage::kGather)].ratio.has_value());
  EXPECT_EQ(comparison->counters_a.launches, 1);
  EXPECT_EQ(comparison->counters_b.launches, 27);
}

TEST(CompareTest, NoPairIsAnError) {
  EXPECT_EQ(Compare({}).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace voxconv::measure
