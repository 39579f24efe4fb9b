// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/machine_load.h"

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace voxconv::measure {
namespace {

using ::testing::HasSubstr;

TEST(MachineLoadTest, SharesOfAllCores) {
  const auto ticks = sysconf(_SC_CLK_TCK);
  const auto stat = [ticks](int user, int idle, int steal) {
    return absl::StrCat("cpu  ", user * ticks, " 0 0 ", idle * ticks, " 0 0 0 ", steal * ticks,
                        " 0 0\ncpu0 1 2 3\n");
  };
  const auto begin = ParseCpuTimes(stat(100, 50, 7));
  const auto end = ParseCpuTimes(stat(150, 80, 27));
  ASSERT_TRUE(begin.has_value() && end.has_value());
  EXPECT_DOUBLE_EQ(begin->total, 157);
  const MachineLoad load = LoadBetween(*begin, *end, 40);
  EXPECT_DOUBLE_EQ(load.steal, 0.2);
  EXPECT_DOUBLE_EQ(load.others, 0.1);
  EXPECT_DOUBLE_EQ(LoadBetween(*begin, *begin, 1).others, 0);
  EXPECT_FALSE(ParseCpuTimes("cpu0 1 2 3 4 5 6 7 8").has_value());
  EXPECT_FALSE(ParseCpuTimes("").has_value());
}

TEST(MachineLoadTest, SaysWhyTimesSayLittle) {
  EXPECT_EQ(WhyBusy(MachineLoad{0.01, 0.05}, nullptr), "");
  EXPECT_EQ(WhyBusy(std::nullopt, nullptr), "");
  EXPECT_THAT(WhyBusy(MachineLoad{0.12, 0.05}, nullptr), HasSubstr("12 %"));
  EXPECT_THAT(WhyBusy(MachineLoad{0, 0.61}, nullptr), HasSubstr("61 %"));
  Comparison wide;
  wide.wall.ratio = Ratio{.value = 2.48, .low = 2.05, .high = 12.73, .pairs = 20};
  wide.verdict = Verdict::kFaster;
  EXPECT_EQ(WhyBusy(MachineLoad{}, &wide), "the interval spans a factor of 6.2");
  wide.wall.ratio->high = 2.6;
  EXPECT_EQ(WhyBusy(MachineLoad{}, &wide), "");
}

TEST(MachineLoadTest, LinesHaveIt) {
  EXPECT_FALSE(LoadWatch().Read().has_value());  // no time has passed
  const Json json = LoadJson(MachineLoad{0.5, 0.25});
  EXPECT_EQ(json["load_average"].size(), 3u);
  EXPECT_EQ(json["steal"], 0.5);
  EXPECT_EQ(json["others"], 0.25);
  EXPECT_TRUE(LoadJson({})["steal"].is_null());
}

}  // namespace
}  // namespace voxconv::measure
