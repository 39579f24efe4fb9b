// SPDX-License-Identifier: Apache-2.0
// Kernel maps, what Validate finds in wrong ones, and the CPU's operations on them.
#include "voxconv/core/kernel_map.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unit_cpu.h"
#include "voxconv/core/map_ops.h"

namespace voxconv {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class KernelMapTest : public testing::Test {
 protected:
  using Rows = std::vector<int32_t>;
  using Counts = std::vector<int64_t>;

  KernelMap Pairs(int64_t inputs, int64_t outputs, Counts offset_ptr, const Rows& in,
                  const Rows& out) {
    return {inputs, outputs, std::move(offset_ptr),
            PairList{*CopyToBackend<int32_t>(in, cpu_.context),
                     *CopyToBackend<int32_t>(out, cpu_.context)}};
  }
  NeighbourTable Table(const Rows& table, const std::vector<uint32_t>& masks = {}) {
    return {.table = *CopyToBackend<int32_t>(table, cpu_.context),
            .masks = *CopyToBackend<uint32_t>(masks, cpu_.context)};
  }
  // Three inputs, two outputs, K = 2: under offset 0 the pairs (2, 0) and (0, 1), under 1 (1, 1).
  KernelMap Example() { return Pairs(3, 2, {0, 2, 3}, {2, 0, 1}, {0, 1, 1}); }
  KernelMap UncountedExample() { return {3, 2, /*num_offsets=*/2, Table({2, -1, 0, 1})}; }

  std::string WhatIsWrong(const KernelMap& map) {
    return std::string(map.Validate(cpu_.context).message());
  }
  MapOps& ops() { return cpu_.backend->map_ops(); }
  int64_t Conversions() const { return cpu_.profile.visits[static_cast<int>(Stage::kConvert)]; }
  static Rows Host(const SharedArray<int32_t>& array) {
    return {array.array().host().begin(), array.array().host().end()};
  }

  UnitCpu cpu_{2};
};

TEST_F(KernelMapTest, CopiesShareArraysAndCounts) {
  const KernelMap map = UncountedExample();
  const std::vector<KernelMap> copies = {map, map.WithoutArrays(),
                                         map.Transposed(std::monostate())};
  EXPECT_EQ(copies[0].table().table.data(), map.table().table.data());
  EXPECT_FALSE(map.counts_known());
  ASSERT_TRUE(copies[0].EnsureCounts(cpu_.context).ok());
  EXPECT_THAT(map.offset_ptr(), ElementsAre(0, 2, 3));
  for (const KernelMap& each : copies) {
    ASSERT_TRUE(each.counts_known());
    EXPECT_THAT(each.offset_ptr(), ElementsAre(0, 2, 3));
    EXPECT_EQ(each.num_pairs(), 3);
    EXPECT_EQ(each.num_pairs(1), 1);
  }
}

TEST_F(KernelMapTest, WithoutArraysKeepsSizesAndFlags) {
  KernelMap map = Pairs(2, 2, {0, 0, 2, 2}, {0, 1}, {0, 1});
  map.set_identity_offset(1);
  map.set_symmetric(true);
  const KernelMap bare = map.WithoutArrays();
  EXPECT_EQ(bare.form(), MapForm::kNone);
  EXPECT_EQ(bare.bytes(), 0);
  EXPECT_EQ(map.bytes(), 16);
  EXPECT_EQ(bare.num_inputs(), 2);
  EXPECT_EQ(bare.num_offsets(), 3);
  EXPECT_EQ(bare.num_pairs(), 2);
  EXPECT_EQ(bare.identity_offset(), 1);
  EXPECT_TRUE(bare.symmetric());
  EXPECT_EQ(WhatIsWrong(bare), "kernel map: its arrays were left out");
  EXPECT_EQ(UncountedExample().WithoutArrays().EnsureCounts(cpu_.context).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(ops().To(MapForm::kPairs, bare, cpu_.context).ok());
  EXPECT_FALSE(ops().Transpose(bare, cpu_.context).ok());
}

TEST_F(KernelMapTest, ADefaultMapIsEmptyAndValid) {
  EXPECT_EQ(WhatIsWrong(KernelMap()), "");
  EXPECT_EQ(KernelMap().num_pairs(), 0);
}

TEST_F(KernelMapTest, ValidateFindsWrongPairs) {
  const auto wrong = [&](const Rows& in, const Rows& out, Counts offset_ptr) {
    return WhatIsWrong(Pairs(3, 3, std::move(offset_ptr), in, out));
  };
  EXPECT_EQ(wrong({0, 1, 2}, {0, 1, 1}, {0, 2, 3}), "");
  EXPECT_THAT(wrong({0, 1, 2}, {1, 0, 1}, {0, 2, 3}), HasSubstr("does not ascend"));
  EXPECT_THAT(wrong({0, 1, 3}, {0, 1, 1}, {0, 2, 3}), HasSubstr("(3, 1) of offset 1 is outside"));
  EXPECT_THAT(wrong({0, 1}, {0, 1}, {0, 2, 3}), HasSubstr("in has 2 entries instead of 3"));
  EXPECT_THAT(wrong({0, 1, 2}, {0, 1, 1}, {0, 2, 1}), HasSubstr("descends at offset 1"));
  EXPECT_THAT(wrong({0, 1, 2}, {0, 1, 1}, {1, 2, 3}), HasSubstr("starts with 1"));
}

// Layouts by input row have one place for the pair of an input row under an offset.
TEST_F(KernelMapTest, ValidateFindsInputsThatRecurUnderAnOffset) {
  EXPECT_EQ(WhatIsWrong(Pairs(3, 3, {0, 1, 3}, {2, 2, 0}, {0, 0, 1})), "");  // two offsets
  EXPECT_EQ(WhatIsWrong(Pairs(3, 3, {0, 1, 4}, {2, 1, 0, 1}, {0, 0, 1, 2})),
            "kernel map: pair 3 is the second of input row 1 under offset 1; allowed is one");
  const auto table = [&](const Rows& rows) {
    return WhatIsWrong({3, 3, /*num_offsets=*/2, Table(rows)});
  };
  EXPECT_EQ(table({2, 1, -1, 2, -1, 0}), "");
  EXPECT_EQ(table({2, 1, -1, -1, -1, 1}),
            "kernel map: table entry 5 is 1 as another entry of offset 1; all must differ");
}

// Sizes are looked at before anything reads by them: a table is counted before it is checked.
TEST_F(KernelMapTest, ValidateFindsTablesOfTheWrongSize) {
  const auto wrong = [&](int64_t entries, const std::vector<uint32_t>& masks, Counts offset_ptr) {
    Rows inputs(entries);  // as row q of three offsets meets input q
    for (int64_t i = 0; i < entries; ++i) inputs[i] = static_cast<int32_t>(i / 3);
    NeighbourTable table = Table(inputs, masks);
    return WhatIsWrong(offset_ptr.empty()
                           ? KernelMap(2, 2, /*num_offsets=*/3, std::move(table))
                           : KernelMap(2, 2, std::move(offset_ptr), std::move(table)));
  };
  EXPECT_EQ(wrong(6, {}, {}), "");
  EXPECT_EQ(wrong(6, {7, 7}, {0, 2, 4, 6}), "");
  EXPECT_THAT(wrong(3, {}, {}), HasSubstr("table has 3 entries instead of 6"));
  EXPECT_THAT(wrong(6, {7}, {}), HasSubstr("masks has 1 entries instead of 2"));
  EXPECT_THAT(wrong(6, {7, 6}, {}), HasSubstr("mask of row 1 is wrong at offset 0"));
  EXPECT_THAT(wrong(6, {7, 15}, {}), HasSubstr("mask of row 1 is wrong at offset 3"));
  EXPECT_THAT(wrong(6, {}, {0, 2, 4}), HasSubstr("table has 6 entries instead of 4"));
  EXPECT_THAT(wrong(6, {}, {0, 2, 4, 7}), HasSubstr("instead of 3"));
}

// The flags of a saved map come from its geometry, its pairs from the file: a dataflow would read
// inputs that are not there.
TEST_F(KernelMapTest, ValidateFindsFlagsThatDoNotHold) {
  const auto valid = [&](int64_t inputs, const Rows& rows, Counts offset_ptr, int identity,
                         bool symmetric) {
    KernelMap map = Pairs(inputs, 2, std::move(offset_ptr), rows, rows);
    map.set_identity_offset(identity);
    map.set_symmetric(symmetric);
    return map.Validate(cpu_.context).ok();
  };
  EXPECT_TRUE(valid(2, {0, 1}, {0, 0, 2, 2}, 1, true));
  EXPECT_FALSE(valid(2, {0}, {0, 0, 1, 1}, 1, true));        // a row does not meet itself
  EXPECT_FALSE(valid(3, {0, 1}, {0, 0, 2, 2}, 1, false));    // other inputs than outputs
  EXPECT_FALSE(valid(2, {0, 1}, {0, 0, 2, 2}, 3, false));    // no such offset
  EXPECT_FALSE(valid(2, {0, 0, 1}, {0, 1, 3, 3}, 1, true));  // no mirrored pair
}

TEST_F(KernelMapTest, ToMakesATableOfPairsAndPairsOfATable) {
  const KernelMap pairs = Example();
  const auto table = ops().To(MapForm::kNeighbourTable, pairs, cpu_.context);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(WhatIsWrong(*table), "");
  EXPECT_THAT(Host(table->table().table), ElementsAre(2, -1, 0, 1));
  EXPECT_EQ(Conversions(), 1);
  for (const KernelMap& from : {*table, UncountedExample()}) {
    const auto back = ops().To(MapForm::kPairs, from, cpu_.context);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(WhatIsWrong(*back), "");
    EXPECT_THAT(back->offset_ptr(), ElementsAre(0, 2, 3));
    EXPECT_THAT(Host(back->pairs().in), ElementsAre(2, 0, 1));
    EXPECT_THAT(Host(back->pairs().out), ElementsAre(0, 1, 1));
    EXPECT_TRUE(from.counts_known());  // counted on the way
  }
}

TEST_F(KernelMapTest, ToLeavesAMapOfThatFormAlone) {
  const KernelMap pairs = Example();
  EXPECT_EQ(ops().To(MapForm::kPairs, pairs, cpu_.context)->pairs().in.data(),
            pairs.pairs().in.data());
  const KernelMap table = UncountedExample();
  EXPECT_EQ(ops().To(MapForm::kNeighbourTable, table, cpu_.context)->table().table.data(),
            table.table().table.data());
  EXPECT_FALSE(table.counts_known());
  EXPECT_EQ(Conversions(), 0);
}

// Neighbours of UncountedExample.
class ExampleLookup final : public NeighbourLookup {
 public:
  absl::Status Find(int64_t first, int64_t count, int32_t* table,
                    const ExecutionContext&) const override {
    constexpr int32_t kTable[] = {2, -1, 0, 1};
    std::copy_n(kTable + 2 * first, 2 * count, table);
    return absl::OkStatus();
  }
  int64_t bytes() const override { return 99; }
};

TEST_F(KernelMapTest, ALookupBecomesEveryForm) {
  const auto lookup = std::make_shared<const ExampleLookup>();
  const KernelMap map(3, 2, /*num_offsets=*/2, lookup);
  EXPECT_EQ(map.form(), MapForm::kLookup);
  EXPECT_EQ(map.bytes(), 99);
  const KernelMap table = *ops().To(MapForm::kNeighbourTable, map, cpu_.context);
  EXPECT_THAT(Host(table.table().table), ElementsAre(2, -1, 0, 1));
  EXPECT_FALSE(map.counts_known());
  const KernelMap mirrored = *ops().Transpose(map, cpu_.context);
  EXPECT_EQ(mirrored.form(), MapForm::kNeighbourTable);
  EXPECT_THAT(Host(mirrored.table().table), ElementsAre(1, -1, -1, 1, 0, -1));
  const KernelMap pairs = *ops().To(MapForm::kPairs, map, cpu_.context);
  EXPECT_THAT(Host(pairs.pairs().in), ElementsAre(2, 0, 1));
  EXPECT_THAT(map.offset_ptr(), ElementsAre(0, 2, 3));  // counted on the way
  EXPECT_EQ(WhatIsWrong(KernelMap(3, 2, 2, lookup)), "");
  EXPECT_THAT(WhatIsWrong(KernelMap(2, 2, 2, lookup)), HasSubstr("table entry 0 is 2"));
  EXPECT_THAT(WhatIsWrong(KernelMap(3, 2, 2, NeighbourLookupPtr())), HasSubstr("lookup is null"));
}

TEST_F(KernelMapTest, EveryMapBecomesALookup) {
  for (const KernelMap& from : {Example(), UncountedExample()}) {
    const KernelMap map = *ops().To(MapForm::kLookup, from, cpu_.context);
    EXPECT_EQ(map.form(), MapForm::kLookup);
    EXPECT_EQ(map.counts_known(), from.counts_known());
    Rows row(2, -2);
    ASSERT_TRUE(map.lookup().Find(1, 1, row.data(), cpu_.context).ok());
    EXPECT_THAT(row, ElementsAre(0, 1));
    EXPECT_EQ(WhatIsWrong(map), "");
  }
}

TEST_F(KernelMapTest, TransposeExchangesInputsAndOutputs) {
  const auto transposed = ops().Transpose(Example(), cpu_.context);
  ASSERT_TRUE(transposed.ok()) << transposed.status();
  EXPECT_EQ(WhatIsWrong(*transposed), "");
  EXPECT_EQ(transposed->num_inputs(), 2);
  EXPECT_EQ(transposed->num_outputs(), 3);
  EXPECT_THAT(transposed->offset_ptr(), ElementsAre(0, 2, 3));
  // Under offset 0 (1, 0) and (0, 2): ascending by output row again.
  EXPECT_THAT(Host(transposed->pairs().in), ElementsAre(1, 0, 1));
  EXPECT_THAT(Host(transposed->pairs().out), ElementsAre(0, 2, 1));
  EXPECT_EQ(Conversions(), 1);
}

TEST_F(KernelMapTest, TransposeOfAnUncountedTableCountsNothing) {
  const KernelMap map = UncountedExample();
  const auto transposed = ops().Transpose(map, cpu_.context);
  ASSERT_TRUE(transposed.ok()) << transposed.status();
  EXPECT_FALSE(map.counts_known());
  EXPECT_FALSE(transposed->counts_known());
  EXPECT_EQ(transposed->form(), MapForm::kNeighbourTable);
  EXPECT_EQ(transposed->num_outputs(), 3);
  EXPECT_THAT(Host(transposed->table().table), ElementsAre(1, -1, -1, 1, 0, -1));
  EXPECT_EQ(WhatIsWrong(*transposed), "");  // counts it
  EXPECT_TRUE(map.counts_known());
  // A table that is counted becomes pairs.
  const auto pairs = ops().Transpose(map, cpu_.context);
  EXPECT_EQ(pairs->form(), MapForm::kPairs);
  EXPECT_THAT(Host(pairs->pairs().out), ElementsAre(0, 2, 1));
}

// Rows and offsets of several tasks.
TEST_F(KernelMapTest, FormsOfALargeMapAgree) {
  constexpr int32_t kRows = 20000;
  constexpr int kOffsets = 5;
  Rows entries;
  for (int32_t row = 0; row < kRows; ++row) {
    for (int k = 0; k < kOffsets; ++k) {  // one row at most for each input row and offset
      const int32_t in = (row * 7 + 1000 * k) % kRows;
      entries.push_back(in % (k + 2) == 0 ? in : -1);
    }
  }
  const KernelMap table(kRows, kRows, kOffsets, Table(entries));
  const KernelMap mirrored = *ops().Transpose(table, cpu_.context);
  const KernelMap pairs = *ops().To(MapForm::kPairs, table, cpu_.context);
  EXPECT_EQ(WhatIsWrong(pairs), "");
  EXPECT_EQ(WhatIsWrong(mirrored), "");
  EXPECT_THAT(Host(ops().To(MapForm::kNeighbourTable, pairs, cpu_.context)->table().table),
              ElementsAreArray(entries));
  const KernelMap twice = *ops().Transpose(*ops().Transpose(pairs, cpu_.context), cpu_.context);
  EXPECT_THAT(Host(twice.pairs().in), ElementsAreArray(Host(pairs.pairs().in)));
  EXPECT_THAT(Host(twice.pairs().out), ElementsAreArray(Host(pairs.pairs().out)));
  EXPECT_THAT(Host(ops().To(MapForm::kPairs, mirrored, cpu_.context)->pairs().in),
              ElementsAreArray(Host(ops().Transpose(pairs, cpu_.context)->pairs().in)));
}

TEST_F(KernelMapTest, EmptyMapsConvert) {
  const KernelMap no_outputs(3, 0, /*num_offsets=*/2, Table({}));
  EXPECT_THAT(Host(ops().To(MapForm::kPairs, no_outputs, cpu_.context)->pairs().in), IsEmpty());
  const KernelMap no_inputs = *ops().Transpose(Pairs(3, 0, {0, 0, 0}, {}, {}), cpu_.context);
  EXPECT_EQ(no_inputs.num_outputs(), 3);
  EXPECT_THAT(Host(ops().To(MapForm::kNeighbourTable, no_inputs, cpu_.context)->table().table),
              ElementsAre(-1, -1, -1, -1, -1, -1));
}

// Conversions go by the sizes, so wrong ones must not reach them.
TEST_F(KernelMapTest, ConversionsRefuseMapsOfTheWrongSize) {
  const KernelMap short_pairs = Pairs(3, 2, {0, 2, 3}, {2, 0}, {0, 1});
  EXPECT_EQ(ops().To(MapForm::kNeighbourTable, short_pairs, cpu_.context).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ops().Transpose(short_pairs, cpu_.context).status().code(),
            absl::StatusCode::kInvalidArgument);
  const KernelMap short_table(3, 2, /*num_offsets=*/2, Table({2, -1, 0}));
  EXPECT_EQ(ops().To(MapForm::kPairs, short_table, cpu_.context).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// 8,000 bytes of pairs: the result fits the limit, the scratch beside it does not.
TEST_F(KernelMapTest, ScratchOfConversionsCountsAgainstTheLimit) {
  const UnitCpu limited(1, /*memory_limit=*/20000);
  Rows rows(1000);
  for (int32_t i = 0; i < 1000; ++i) rows[i] = i;
  const KernelMap map(1000, 1000, {0, 1000},
                      PairList{*CopyToBackend<int32_t>(rows, limited.context),
                               *CopyToBackend<int32_t>(rows, limited.context)});
  EXPECT_EQ(limited.backend->map_ops().Transpose(map, limited.context).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace voxconv
