// SPDX-License-Identifier: Apache-2.0
#include "dataflow_test_util.h"
#include "gtest/gtest.h"
#include "voxconv/dataflows/direct/register.h"

namespace voxconv {
namespace {

class DirectTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(RegisterDirect(registry_).ok()); }

  Registry registry_;
};

TEST_F(DirectTest, AllVariantsMatchTheirPairs) { CheckAllVariants(registry_); }

TEST_F(DirectTest, CachedWeightsSaveReads) {
  const ConvProblem problem(DensityMap(200, 300, 27, 0.3), 8, 24);
  const Profile naive = RunDataflow(registry_, "direct:weights=naive", problem).profile;
  const Profile cached = RunDataflow(registry_, "direct:weights=cached", problem).profile;
  EXPECT_GT(naive.counters.bytes_read, 2 * cached.counters.bytes_read);
  EXPECT_EQ(naive.counters.peak_workspace, 0);
  EXPECT_GT(cached.counters.peak_workspace, 0);
  EXPECT_EQ(naive.counters.padded_pairs, problem.map.num_pairs());
  EXPECT_EQ(cached.counters.padded_pairs, problem.map.num_pairs());
}

// Offsets that exceed one cache block: partial sums go through the output.
TEST_F(DirectTest, CachedWeightsInSeveralBlocks) {
  const ConvProblem problem(DensityMap(40, 30, 27, 0.5), 256, 17);
  const std::string spec = "direct:weights=cached";
  ExpectNear(RunDataflow(registry_, spec, problem).output, problem, spec);
}

}  // namespace
}  // namespace voxconv
