// SPDX-License-Identifier: Apache-2.0
// What the program prints for people.
#include "voxconv/cli/terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "voxconv/cli/input_options.h"
#include "voxconv/cli/run_report.h"
#include "voxconv/cli/suggest.h"
#include "voxconv/io/load_input.h"
#include "voxconv/networks/models.h"

namespace voxconv::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(FormatTable, FitsTheWidth) {
  const std::vector<std::vector<std::string>> rows = {
      {"layer", "first ms", "second ms", "third ms", "fourth ms"},
      {"stem.conv1", "1.25", "-", "12.5", "3"},
      {"stem.conv2", "10.25", "7", "", "-4"}};
  EXPECT_EQ(FormatTable(rows, 60),
            "layer       first ms  second ms  third ms  fourth ms\n"
            "stem.conv1      1.25  -              12.5          3\n"
            "stem.conv2     10.25          7                   -4\n");
  EXPECT_EQ(FormatTable(rows, 40),
            "layer       first ms  second ms\n"
            "stem.conv1      1.25  -\n"
            "stem.conv2     10.25          7\n"
            "\n"
            "layer       third ms  fourth ms\n"
            "stem.conv1      12.5          3\n"
            "stem.conv2                   -4\n");
  EXPECT_EQ(FormatTable({{"name", "about"}, {"a", "some words that do not fit"}}, 20),
            "name  about\n"
            "a     some words\n"
            "      that do not\n"
            "      fit\n");
  EXPECT_EQ(FormatTable({}, 20), "");
  // Nothing is lost where nothing fits.
  EXPECT_THAT(FormatTable({{"a", "b"}, {std::string(30, 'x'), std::string(30, 'y')}}, 40),
              HasSubstr(std::string(30, 'y')));
}

TEST(ProgressText, TellsTheTimeLeft) {
  EXPECT_EQ(ProgressText("verify", 0, 50, 7, 7), "verify 0 % (0 of 50), 7 s so far");
  EXPECT_EQ(ProgressText("verify", 10, 50, 20, 0), "verify 20 % (10 of 50), 80 s left");
  // It falls while a step takes longer, down to nothing.
  EXPECT_EQ(ProgressText("verify", 10, 50, 25, 5), "verify 20 % (10 of 50), 75 s left");
  EXPECT_EQ(ProgressText("verify", 10, 50, 999, 979), "verify 20 % (10 of 50), 0 s left");
  EXPECT_EQ(ProgressText("tuning", 1, 100, 60, 0), "tuning 1 % (1 of 100), 99 min left");
}

TEST(DidYouMean, NamesTheNearest) {
  const std::vector<std::string> names = {"run", "report", "experiment", "info"};
  EXPECT_EQ(DidYouMean("rnu", names), " (did you mean 'run'?)");
  EXPECT_EQ(DidYouMean("reprot", names), " (did you mean 'report'?)");
  EXPECT_EQ(DidYouMean("experment", names), " (did you mean 'experiment'?)");
  EXPECT_EQ(DidYouMean("frobnicate", names), "");
  EXPECT_EQ(DidYouMean(std::string(1 << 20, 'r'), names), "");
}

TEST(ParseLayerChannels, TakesBothWaysOfWriting) {
  for (const char* text : {"64,32", "64x32"}) {
    const auto channels = ParseLayerChannels(text);
    ASSERT_TRUE(channels.ok()) << channels.status();
    EXPECT_EQ(channels->in, 64);
    EXPECT_EQ(channels->out, 32);
  }
  for (const char* text : {"", "64", "64,", "0x4", "4x65537", "4,4,4", "-1,4", "4;4"}) {
    EXPECT_FALSE(ParseLayerChannels(text).ok()) << text;
  }
}

TEST(HowLong, AMinuteOrMoreIsSaid) {
  const VoxelizedCloud cloud = *voxconv::LoadInput("scene:uniform?n=1000&box=10", {});
  const NetworkGraph graph = *MakeModel("minkunet42", {});
  constexpr double kFast = 1e12, kSlow = 1e5;
  EXPECT_EQ(HowLong(graph, cloud, kFast), "");
  EXPECT_THAT(HowLong(graph, cloud, kSlow), HasSubstr("one run takes more than "));
}

}  // namespace
}  // namespace voxconv::cli
