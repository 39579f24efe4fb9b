// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/ab_rounds.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/cli/self_command.h"

namespace voxconv::cli {
namespace {

using ::testing::ElementsAre;

TEST(AbRoundsTest, TheMedianAndTheSpanOfAllRounds) {
  const measure::Ratio combined =
      CombineRounds({{2.48, 2.05, 2.9, 20}, {0.9, 0.49, 1.2, 20}, {6.99, 6.0, 12.73, 20}});
  EXPECT_DOUBLE_EQ(combined.value, 2.48);
  EXPECT_DOUBLE_EQ(combined.low, 0.49);
  EXPECT_DOUBLE_EQ(combined.high, 12.73);
  EXPECT_EQ(combined.pairs, 60);
  EXPECT_EQ(VerdictLine(measure::Judge(combined), combined),
            "no difference between A and B: B / A is 2.48 (0.49..12.73)");
}

TEST(AbRoundsTest, OptionsOfTheParentAreLeftOut) {
  EXPECT_THAT(WithoutOption("rounds", {"--a", "x", "--rounds", "3", "--rounds=4", "--round", "1"}),
              ElementsAre("--a", "x", "--round", "1"));
}

}  // namespace
}  // namespace voxconv::cli
