// SPDX-License-Identifier: Apache-2.0
// What is read from Nsight Compute, and what is said where it is missing or fails.
#include "voxconv/experiments/runner/hardware.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/experiments/runner/published.h"

namespace voxconv::experiment {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kReport[] =
    R"csv(==PROF== Connected to process 1
==PROF== Disconnected
"ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum","lts__t_sectors_lookup_hit.sum","lts__t_sectors_lookup_miss.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed"
"","","byte","byte","ns","sector","sector","%"
"0","void Search<int, 256>(""x"", int)","1,000","24","3,000","75","25","50.0"
"1","Build","500","0","1,000","15","85","10.0"
)csv";

TEST(NcuCsvTest, CountersOfAllKernelsAreSummed) {
  const auto counters = ParseNcuCsv(kReport);
  ASSERT_TRUE(counters.ok()) << counters.status();
  EXPECT_EQ((*counters)["kernels"], 2);
  EXPECT_DOUBLE_EQ((*counters)["l2_hit"].get<double>(), 90.0 / 200.0);
  EXPECT_DOUBLE_EQ((*counters)["dram_bytes"].get<double>(), 1524);
  EXPECT_DOUBLE_EQ((*counters)["utilisation"].get<double>(), 0.4);  // (3 * 50 + 1 * 10) / 4 %
}

TEST(NcuCsvTest, AnErrorOfNcuIsPassedOn) {
  EXPECT_THAT(
      std::string(
          ParseNcuCsv("==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM: no\n").status().message()),
      HasSubstr("ERR_NVGPUCTRPERM"));
  EXPECT_THAT(std::string(ParseNcuCsv("").status().message()), HasSubstr("no kernels"));
}

TEST(NcuCsvTest, AMetricThatIsMissingIsNamed) {
  EXPECT_THAT(std::string(ParseNcuCsv("\"ID\",\"lts__t_sectors_lookup_hit.sum\"\n\"0\",\"1\"\n")
                              .status()
                              .message()),
              HasSubstr("lts__t_sectors_lookup_miss.sum"));
}

TEST(NcuCsvTest, AValueThatIsNoNumberIsNamed) {
  std::string text = kReport;
  text.replace(text.find("\"500\""), 5, "\"n/a\"");
  EXPECT_THAT(std::string(ParseNcuCsv(text).status().message()), HasSubstr("'n/a'"));
}

TEST(ProfiledSideTest, RoundTrips) {
  const auto side = ParseProfiledSide(ToString({.cell = 12, .side = 'b', .experiment = "a/b:c"}));
  ASSERT_TRUE(side.ok()) << side.status();
  EXPECT_EQ(side->cell, 12u);
  EXPECT_EQ(side->side, 'b');
  EXPECT_EQ(side->experiment, "a/b:c");
  for (const char* wrong : {"", "1:a", "x:a:name", "1:c:name", "-1:a:name"}) {
    EXPECT_FALSE(ParseProfiledSide(wrong).ok()) << wrong;
  }
}

TEST(ReadHardwareCountersTest, AProgramThatCannotBeStartedIsAnError) {
  EXPECT_FALSE(ReadHardwareCounters("/nonexistent/ncu", {}, {"true"}).ok());
}

TEST(ReadHardwareCountersTest, AllStagesOfAGroupAreAskedFor) {
  const std::string ncu =
      (std::filesystem::temp_directory_path() / absl::StrCat("voxconv_ncu_", getpid())).string();
  // Names of metrics in the line would make it the header.
  std::ofstream(ncu) << "#!/bin/sh\necho \"==ERROR== $*\" | sed 's/lts__[a-z_]*//g'\n";
  std::filesystem::permissions(ncu, std::filesystem::perms::owner_all);
  const auto asked = [&](absl::string_view stage) {
    return std::string(ReadHardwareCounters(ncu, StagesNamed(stage), {"me"}).status().message());
  };
  EXPECT_THAT(asked("movement"),
              HasSubstr("--nvtx --nvtx-include gather/ --nvtx-include scatter/"));
  EXPECT_THAT(asked("map_query"), HasSubstr("--nvtx --nvtx-include map_query/ me"));
  EXPECT_THAT(asked(""), Not(HasSubstr("--nvtx")));
  std::filesystem::remove(ncu);
}

}  // namespace
}  // namespace voxconv::experiment
