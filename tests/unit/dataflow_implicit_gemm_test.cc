// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "dataflow_test_util.h"
#include "gtest/gtest.h"
#include "voxconv/dataflows/implicit_gemm/register.h"

namespace voxconv {
namespace {

class ImplicitGemmTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(RegisterImplicitGemm(registry_).ok()); }

  Counters CountersOf(const std::string& spec) {
    return RunDataflow(registry_, spec, problem_).profile.counters;
  }

  std::string LayoutOf(const std::string& spec, int num_offsets) {
    const auto dataflow = *registry_.dataflows().Create(spec, BackendKind::kCpu);
    const MapNeed need = dataflow->NeededMap(Pass::kForward, {4, 4, num_offsets});
    EXPECT_EQ(need.form, MapForm::kNeighbourTable);
    EXPECT_FALSE(need.transposed);
    return need.layout;
  }

  Registry registry_;
  const ConvProblem problem_{DensityMap(200, 300, 27, 0.1), 8, 8};
};

TEST_F(ImplicitGemmTest, AllVariantsMatchTheirPairs) { CheckAllVariants(registry_); }

TEST_F(ImplicitGemmTest, RefusesOptionsThatTheCpuHasNot) {
  for (const char* spec : {"implicit_gemm:mma=warp", "implicit_gemm:tile_channels=64"}) {
    EXPECT_EQ(registry_.dataflows().Create(spec, BackendKind::kCpu).status(),
              absl::InvalidArgumentError(
                  "dataflow implicit_gemm: the CPU has no mma and tile_channels to choose"));
  }
  for (const std::string& spec : registry_.dataflows().Variants(BackendKind::kCpu)) {
    EXPECT_EQ(spec.find("mma="), std::string::npos) << spec;
    EXPECT_EQ(spec.find("tile_channels="), std::string::npos) << spec;
  }
}

TEST_F(ImplicitGemmTest, SortingSavesPadding) {
  const int64_t none = CountersOf("implicit_gemm:mask_sort=none").padded_pairs;
  const int64_t mask = CountersOf("implicit_gemm:mask_sort=mask").padded_pairs;
  const int64_t gray = CountersOf("implicit_gemm:mask_sort=gray").padded_pairs;
  EXPECT_GT(none, mask);
  EXPECT_GT(mask, problem_.map.num_pairs());
  EXPECT_GT(none, gray);
  EXPECT_NE(mask, gray);
}

TEST_F(ImplicitGemmTest, SplitsSavePaddingAndCostPartialSums) {
  const Counters whole = CountersOf("implicit_gemm");
  const Counters split = CountersOf("implicit_gemm:splits=3");
  EXPECT_LT(split.padded_pairs, whole.padded_pairs);
  EXPECT_EQ(whole.launches, 1);
  EXPECT_EQ(split.launches, 4);
  EXPECT_GE(split.peak_workspace, whole.peak_workspace + int64_t{2} * 300 * 8 * 4);
}

TEST_F(ImplicitGemmTest, TileOfOneRowHasNoPadding) {
  EXPECT_EQ(CountersOf("implicit_gemm:tile=1").padded_pairs, problem_.map.num_pairs());
  EXPECT_GT(CountersOf("implicit_gemm:tile=32").padded_pairs,
            CountersOf("implicit_gemm:tile=4").padded_pairs);
}

TEST_F(ImplicitGemmTest, AsksForNoMoreSplitsThanOffsets) {
  EXPECT_EQ(LayoutOf("implicit_gemm:splits=8", 27), "mask_sorted:order=mask,splits=8");
  EXPECT_EQ(LayoutOf("implicit_gemm:splits=8", 1), "mask_sorted:order=mask,splits=1");
  EXPECT_EQ(LayoutOf("implicit_gemm:splits=8", 0), "mask_sorted:order=mask,splits=1");
}

TEST_F(ImplicitGemmTest, OrdersShortMasksByTheirValue) {
  EXPECT_EQ(LayoutOf("implicit_gemm:mask_sort=rarest", 10), "mask_sorted:order=rarest,splits=1");
  EXPECT_EQ(LayoutOf("implicit_gemm:mask_sort=rarest", 9), "mask_sorted:order=mask,splits=1");
  EXPECT_EQ(LayoutOf("implicit_gemm:mask_sort=gray", 9), "mask_sorted:order=gray,splits=1");
}

TEST_F(ImplicitGemmTest, OrdersManyRowsByTheirWholeMasks) {
  constexpr int64_t kManyRows = 400'000;
  const auto padded = [&](const char* order, int64_t rows) {
    const ConvProblem problem{DensityMap(rows, rows, 27, 0.05), 1, 1};
    const std::string spec = absl::StrCat("implicit_gemm:tile=64,mask_sort=", order);
    return RunDataflow(registry_, spec, problem).profile.counters.padded_pairs;
  };
  EXPECT_EQ(padded("rarest", kManyRows), padded("gray", kManyRows));
  EXPECT_NE(padded("rarest", kManyRows - 1), padded("gray", kManyRows - 1));
}

}  // namespace
}  // namespace voxconv
