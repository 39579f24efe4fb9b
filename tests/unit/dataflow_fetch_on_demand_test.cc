// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "dataflow_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/dataflows/fetch_on_demand/copies.h"
#include "voxconv/dataflows/fetch_on_demand/register.h"
#include "voxconv/dataflows/fetch_on_demand/schedule.h"

namespace voxconv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FetchOnDemandTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(RegisterFetchOnDemand(registry_).ok()); }

  Counters CountersOf(const std::string& spec) {
    return RunDataflow(registry_, spec, problem_).profile.counters;
  }

  Registry registry_;
  const ConvProblem problem_{DensityMap(200, 300, 27, 0.3), 8, 8};
};

TEST_F(FetchOnDemandTest, AllVariantsMatchTheirPairs) { CheckAllVariants(registry_); }

TEST_F(FetchOnDemandTest, FusionShowsInCounters) {
  const Counters separate = CountersOf("fetch_on_demand:fusion=separate");
  const Counters batched = CountersOf("fetch_on_demand:fusion=batched");
  const Counters segmented = CountersOf("fetch_on_demand:fusion=segmented");
  EXPECT_EQ(separate.launches, 27);
  EXPECT_EQ(batched.launches, 2);  // every third offset is a quarter as full
  EXPECT_EQ(segmented.launches, 1);
  EXPECT_EQ(separate.padded_pairs, problem_.map.num_pairs());
  EXPECT_GT(batched.padded_pairs, problem_.map.num_pairs());
  EXPECT_EQ(segmented.padded_pairs, problem_.map.num_pairs());
  EXPECT_GT(separate.bytes_written, batched.bytes_written);
  EXPECT_GT(batched.bytes_written, segmented.bytes_written);
}

TEST_F(FetchOnDemandTest, SmallerTilesReadWeightsMoreOften) {
  EXPECT_GT(CountersOf("fetch_on_demand:tile=16").bytes_read,
            CountersOf("fetch_on_demand:tile=256").bytes_read);
}

// A row's sum runs over the identity offset, then over ascending ones, however the work is cut.
TEST_F(FetchOnDemandTest, TileAndSeparateFusionDoNotChangeABit) {
  const std::vector<float> expected = RunDataflow(registry_, "fetch_on_demand", problem_).output;
  EXPECT_EQ(RunDataflow(registry_, "fetch_on_demand:tile=17", problem_).output, expected);
  EXPECT_EQ(RunDataflow(registry_, "fetch_on_demand:fusion=separate", problem_).output, expected);
}

TEST_F(FetchOnDemandTest, CopiesCountTheirBytes) {
  const Counters fetched = CountersOf("fetch_on_demand:fusion=separate");
  const Counters copied = CountersOf("fetch_on_demand:fusion=separate,copies=always");
  EXPECT_EQ(copied.true_pairs, fetched.true_pairs);
  EXPECT_NE(copied.bytes_written, fetched.bytes_written);
  // 8 channels are fetched by the engine's rule.
  const Counters by_rule = CountersOf("fetch_on_demand:fusion=separate,copies=minkowski");
  EXPECT_EQ(by_rule.bytes_written, fetched.bytes_written);
}

TEST_F(FetchOnDemandTest, OnlySeparateOffsetsAreCopied) {
  const auto made =
      registry_.dataflows().Create("fetch_on_demand:copies=always", BackendKind::kCpu);
  EXPECT_THAT(made.status().message(),
              testing::HasSubstr("copies=always: needs fusion=separate, not fusion=segmented"));
}

TEST_F(FetchOnDemandTest, SixProductsOfBf16NeedSegmentedOffsets) {
  for (const char* fusion : {"separate", "batched"}) {
    const auto made = registry_.dataflows().Create(
        absl::StrCat("fetch_on_demand:mma=6xbf16,fusion=", fusion), BackendKind::kCpu);
    EXPECT_THAT(made.status().message(),
                testing::HasSubstr("mma=6xbf16: needs fusion=segmented, not fusion="));
  }
}

// Where the processor has AMX, sums differ by roundings alone. Tiles do not change a bit.
TEST_F(FetchOnDemandTest, SixProductsOfBf16) {
  const ConvProblem wide{DensityMap(700, 1300, 27, 0.3), 32, 72};
  const std::vector<float> expected = RunDataflow(registry_, "fetch_on_demand", wide).output;
  const std::vector<float> actual =
      RunDataflow(registry_, "fetch_on_demand:mma=6xbf16", wide).output;
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-3) << i;
  EXPECT_EQ(RunDataflow(registry_, "fetch_on_demand:mma=6xbf16,tile=100", wide).output, actual);
}

// Weights that are not three numbers of bf16 are multiplied as by default.
TEST_F(FetchOnDemandTest, SixProductsOfBf16LeaveOtherWeights) {
  ConvProblem wide{DensityMap(70, 90, 27, 0.3), 32, 72};
  wide.weights[1000] = 0x1p-60f;
  EXPECT_EQ(RunDataflow(registry_, "fetch_on_demand:mma=6xbf16", wide).output,
            RunDataflow(registry_, "fetch_on_demand", wide).output);
}

TEST(CopiesRowsTest, FollowsMinkowskiEngine) {
  const auto copies = [](int64_t c_in, int64_t c_out, int64_t rows) {
    return CopiesRows(CopyRule::kMinkowski, c_in, c_out, rows);
  };
  EXPECT_FALSE(copies(4, 32, 1000000));  // few channels in
  EXPECT_FALSE(copies(256, 20, 1000000));
  EXPECT_FALSE(copies(32, 32, 295625));
  EXPECT_TRUE(copies(32, 32, 295626));
  EXPECT_FALSE(copies(12, 32, 295626));
  EXPECT_FALSE(copies(32, 64, 490537));  // the exception
  EXPECT_TRUE(copies(32, 64, 490538));
  EXPECT_FALSE(copies(64, 64, 74556));
  EXPECT_TRUE(copies(64, 64, 74557));
  EXPECT_FALSE(copies(96, 112, 100));
  EXPECT_TRUE(copies(96, 128, 100));
  EXPECT_FALSE(copies(20, 128, 100000));
}

TEST(ScheduleFgmsTest, Separate) {
  const auto launches = ScheduleFgms(FgmsFusion::kSeparate, {0, 4, 4, 7});
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_THAT(launches[0].offsets, ElementsAre(0));
  EXPECT_THAT(launches[0].padded_rows, ElementsAre(4));
  EXPECT_THAT(launches[1].offsets, ElementsAre(2));
  EXPECT_THAT(launches[1].padded_rows, ElementsAre(3));
}

TEST(ScheduleFgmsTest, Segmented) {
  const auto launches = ScheduleFgms(FgmsFusion::kSegmented, {0, 4, 4, 7});
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_THAT(launches[0].offsets, ElementsAre(0, 2));
  EXPECT_THAT(launches[0].padded_rows, ElementsAre(4, 3));
}

TEST(ScheduleFgmsTest, BatchedGroupsSimilarSizes) {
  // Sizes 5, 10, 3, 6, 0, 3.
  const auto launches = ScheduleFgms(FgmsFusion::kBatched, {0, 5, 15, 18, 24, 24, 27});
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_THAT(launches[0].offsets, ElementsAre(1, 3));
  EXPECT_THAT(launches[0].padded_rows, ElementsAre(10, 10));
  EXPECT_THAT(launches[1].offsets, ElementsAre(0, 2, 5));
  EXPECT_THAT(launches[1].padded_rows, ElementsAre(5, 5, 5));
}

TEST(ScheduleFgmsTest, NoPairsNoLaunch) {
  for (FgmsFusion fusion : {FgmsFusion::kSeparate, FgmsFusion::kBatched, FgmsFusion::kSegmented}) {
    EXPECT_THAT(ScheduleFgms(fusion, {0, 0, 0}), IsEmpty());
  }
}

}  // namespace
}  // namespace voxconv
