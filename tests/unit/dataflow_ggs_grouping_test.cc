// SPDX-License-Identifier: Apache-2.0
// Grouping and schedule, held against groups worked out by hand.
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/dataflows/gather_gemm_scatter/grouping.h"
#include "voxconv/dataflows/gather_gemm_scatter/schedule.h"

namespace voxconv {
namespace {

using ::testing::ElementsAre;
using Groups = std::vector<OffsetGroup>;
using Sizes = std::vector<int64_t>;

constexpr int64_t kNoLimit = 1'000'000;

// A symmetric 3x3 kernel over 100 voxels; the centre, offset 4, is the identity.
const Sizes kSymmetricSizes = {10, 20, 40, 36, 100, 36, 40, 20, 10};

TEST(GroupOffsets, SeparateIsOneMatmulAnOffsetWithoutTheIdentity) {
  const GroupingRule rule{Grouping::kSeparate};
  EXPECT_EQ(GroupOffsets(Sizes{5, 9, 3}, true, 1, rule), (Groups{{{0}, 5}, {{2}, 3}}));
  EXPECT_EQ(GroupOffsets(Sizes{5, 9, 3}, false, -1, rule), (Groups{{{0}, 5}, {{1}, 9}, {{2}, 3}}));
}

TEST(GroupOffsets, SymmetricPairsEachOffsetWithItsMirror) {
  EXPECT_EQ(
      GroupOffsets(kSymmetricSizes, true, 4, {Grouping::kSymmetric}),
      (Groups{{{0, 8}, 10, true}, {{1, 7}, 20, true}, {{2, 6}, 40, true}, {{3, 5}, 36, true}}));
}

TEST(GroupOffsets, SymmetricOfAnotherMapIsSeparate) {
  EXPECT_EQ(GroupOffsets(Sizes{4, 5}, false, -1, {Grouping::kSymmetric}),
            (Groups{{{0}, 4}, {{1}, 5}}));
}

TEST(GroupOffsets, FixedOfSubmanifoldIsFirstFourTheRestAndTheCentre) {
  const Sizes sizes(27, 7);
  const Groups groups = GroupOffsets(sizes, true, 13, {Grouping::kFixed});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_THAT(groups[0].offsets, ElementsAre(0, 26, 1, 25, 2, 24, 3, 23));
  EXPECT_EQ(groups[1].offsets.size(), 18u);
  EXPECT_TRUE(groups[0].batched && groups[1].batched);
}

TEST(GroupOffsets, FixedOfAnotherLayerIsThreeRanges) {
  EXPECT_EQ(GroupOffsets(Sizes{1, 2, 3, 4, 5, 6, 7, 8}, false, -1, {Grouping::kFixed}),
            (Groups{{{0, 1, 2}, 3, true}, {{3, 4, 5}, 6, true}, {{6, 7}, 8, true}}));
}

// 1 - 10/20 = 0.5; 1 - 20/40 = 0.5; with 36 the minimum stays 20.
TEST(GroupOffsets, AdaptiveStartsAGroupWherePaddingExceedsEpsilon) {
  EXPECT_EQ(GroupOffsets(kSymmetricSizes, true, 4, {Grouping::kAdaptive, 0.5, kNoLimit}),
            (Groups{{{0, 8, 1, 7}, 20, true}, {{2, 6, 3, 5}, 40, true}}));
  EXPECT_EQ(GroupOffsets(kSymmetricSizes, true, 4, {Grouping::kAdaptive, 0.4, kNoLimit}),
            (Groups{{{0, 8}, 10, true}, {{1, 7}, 20, true}, {{2, 6, 3, 5}, 40, true}}));
}

TEST(GroupOffsets, AdaptiveMinimumIsOverTheWholeGroup) {
  // 12 fits to 8 (1 - 8/12 = 1/3) and 16 to 12 (1/4), but 16 does not fit to 8 (1/2).
  EXPECT_EQ(GroupOffsets(Sizes{8, 12, 16}, false, -1, {Grouping::kAdaptive, 0.4, kNoLimit}),
            (Groups{{{0, 1}, 12, true}, {{2}, 16, false}}));
}

// Section 4.2.3: the special cases of (epsilon, S).
TEST(GroupOffsets, AdaptiveCoversTheSpecialCases) {
  const Groups dense = GroupOffsets(kSymmetricSizes, true, 4, {Grouping::kAdaptive, 1.0, kNoLimit});
  ASSERT_EQ(dense.size(), 1u);
  EXPECT_TRUE(dense[0].batched);
  EXPECT_EQ(dense[0].offsets.size(), 8u);
  EXPECT_EQ(GroupOffsets(kSymmetricSizes, true, 4, {Grouping::kAdaptive, 0.0, kNoLimit}),
            GroupOffsets(kSymmetricSizes, true, 4, {Grouping::kSymmetric}));
  for (const OffsetGroup& group :
       GroupOffsets(kSymmetricSizes, true, 4, {Grouping::kAdaptive, 1.0, 0})) {
    EXPECT_FALSE(group.batched);
  }
}

TEST(GroupOffsets, AdaptiveBatchesBelowTheThresholdOnly) {
  const GroupingRule rule{Grouping::kAdaptive, 0.5, /*threshold=*/40};
  EXPECT_EQ(GroupOffsets(kSymmetricSizes, true, 4, rule),
            (Groups{{{0, 8, 1, 7}, 20, true}, {{2, 6, 3, 5}, 40, false}}));
}

// Alternating sizes: unsorted no two neighbours fit, sorted they are two groups without padding.
TEST(GroupOffsets, SortedAdaptiveNeedsFewerGroups) {
  const Sizes sizes = {4, 9, 4, 9};
  EXPECT_EQ(GroupOffsets(sizes, false, -1, {Grouping::kAdaptive, 0.0, kNoLimit}).size(), 4u);
  EXPECT_EQ(GroupOffsets(sizes, false, -1, {Grouping::kSortedAdaptive, 0.0, kNoLimit}),
            (Groups{{{0, 2}, 4, true}, {{1, 3}, 9, true}}));
}

// Minuet counts padding for each pair: 1 + 0 of 9, then 4 + 3 + 0 of 13 + 4.
TEST(GroupOffsets, SortedAdaptivePadsByPairs) {
  const Sizes sizes = {8, 4, 5};
  const auto groups = [&](double epsilon) {
    return GroupOffsets(sizes, false, -1, {Grouping::kSortedAdaptive, epsilon, kNoLimit});
  };
  EXPECT_EQ(groups(0.1), (Groups{{{1}, 4, false}, {{2}, 5, false}, {{0}, 8, false}}));
  EXPECT_EQ(groups(1.0 / 9), (Groups{{{1, 2}, 5, true}, {{0}, 8, false}}));
  EXPECT_EQ(groups(7.0 / 17), (Groups{{{1, 2, 0}, 8, true}}));
}

TEST(GroupOffsets, EmptyOffsetsAreInNoGroup) {
  EXPECT_EQ(GroupOffsets(Sizes{0, 3, 0, 3}, false, -1, {Grouping::kAdaptive, 0.0, kNoLimit}),
            (Groups{{{1, 3}, 3, true}}));
  EXPECT_TRUE(GroupOffsets(Sizes{0, 5, 0}, true, 1, {Grouping::kFixed}).empty());
  EXPECT_TRUE(GroupOffsets(Sizes{}, false, -1, {Grouping::kFixed}).empty());
}

TEST(GroupOffsets, ACentreThatIsNoIdentityIsMultipliedToo) {
  EXPECT_EQ(GroupOffsets(Sizes{2, 6, 2}, true, -1, {Grouping::kSymmetric}),
            (Groups{{{0, 2}, 2, true}, {{1}, 6, false}}));
}

TEST(MakeSchedule, OnePassHoldsAllGroupsAndTheirPadding) {
  const Sizes offset_ptr = {0, 2, 5, 6};
  const Groups groups = {{{0, 1}, 3, true}, {{2}, 1, false}};
  const Schedule schedule = *MakeSchedule(offset_ptr, -1, groups, 100);
  ASSERT_EQ(schedule.passes.size(), 1u);
  const BufferPass& pass = schedule.passes[0];
  EXPECT_EQ(pass.rows, 7);
  EXPECT_EQ(pass.pairs, 6);
  EXPECT_EQ(pass.windows[1].RowOf(2), 3);  // the first pair of offset 1, after 0's padding
  EXPECT_EQ(pass.windows[2].RowOf(5), 6);
  ASSERT_EQ(pass.padding.size(), 1u);
  EXPECT_EQ(pass.padding[0].base, 2);
  EXPECT_EQ(pass.padding[0].rows, 1);
}

TEST(MakeSchedule, SmallBuffersCutRowsAndKeepThePadding) {
  const Sizes offset_ptr = {0, 2, 7};
  const Groups groups = {{{0, 1}, 5, true}};
  const Schedule schedule = *MakeSchedule(offset_ptr, -1, groups, 5);  // slices of 2, 2, 1 rows
  ASSERT_EQ(schedule.passes.size(), 3u);
  int64_t rows = 0, pairs = 0;
  for (const BufferPass& pass : schedule.passes) {
    EXPECT_LE(pass.rows, 5);
    rows += pass.rows;
    pairs += pass.pairs;
  }
  EXPECT_EQ(rows, 10);
  EXPECT_EQ(pairs, 7);
  EXPECT_FALSE(schedule.passes[1].windows[0].Contains(1));
  EXPECT_TRUE(schedule.passes[1].windows[1].Contains(4));
}

TEST(MakeSchedule, RefusesABatchThatDoesNotFit) {
  const Groups groups = {{{0, 1}, 5, true}};
  const absl::Status status = MakeSchedule(Sizes{0, 5, 10}, -1, groups, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace voxconv
