// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "mapping_cases.h"
#include "voxconv/mapping/sorted_search/register.h"

namespace voxconv {
namespace {

using ::testing::HasSubstr;

Registry MakeRegistry() {
  Registry registry;
  EXPECT_TRUE(RegisterSortedSearchMapping(registry).ok());
  return registry;
}

class SortedSearchTest : public testing::TestWithParam<MapCase> {};

TEST_P(SortedSearchTest, EveryVariantIsExact) {
  const Registry registry = MakeRegistry();
  ASSERT_GE(registry.mappings().Variants(BackendKind::kCpu).size(), 12u);
  ExpectExactMaps(registry, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Cases, SortedSearchTest, testing::ValuesIn(MapCases()),
                         [](const auto& info) { return info.param.name; });

// More rows than one block of the pair collector has.
TEST(SortedSearchLargeTest, VariantsAgreeAcrossBlocks) {
  const Registry registry = MakeRegistry();
  ASSERT_FALSE(registry.mappings().Variants(BackendKind::kCpu).empty());
  for (bool sorted : {true, false}) {
    std::vector<Coordinate> voxels = RandomVoxels(12000, {0, 1}, -20, 20, {1, 1, 1}, 5);
    if (sorted) voxels = Sorted(std::move(voxels));
    const MapCase c = Submanifold("Large", std::move(voxels), {3, 3, 3});
    Pairs expected;
    for (const std::string& spec : registry.mappings().Variants(BackendKind::kCpu)) {
      SCOPED_TRACE(spec);
      UnitCpu cpu(2);
      const auto map = RunMapping(**registry.mappings().Create(spec, BackendKind::kCpu), c, cpu);
      ASSERT_TRUE(map.ok()) << map.status();
      ASSERT_TRUE(map->Validate(cpu.context).ok());
      const Pairs found = PairsOf(*map);
      if (expected.in.empty()) expected = found;
      ASSERT_GT(found.in.size(), 100000u);
      EXPECT_TRUE(found == expected);
    }
  }
}

TEST(SortedSearchPluginTest, CountsQueriesAndStages) {
  const Registry registry = MakeRegistry();
  const MapCase c = Submanifold("", Sorted(RandomVoxels(50, {0}, 0, 5, {1, 1, 1}, 6)), {3, 3, 3});
  const int64_t rows = c.inputs.size();
  for (const auto& [options, queries] : {std::pair<std::string, int64_t>{"", 27 * rows},
                                         {"symmetric=true", 13 * rows},
                                         {"variant=full,symmetric=true", 13 * rows},
                                         {"variant=naive", 27 * rows}}) {
    UnitCpu cpu(1);
    const auto mapping = registry.mappings().Create("sorted_search:" + options, BackendKind::kCpu);
    ASSERT_TRUE(RunMapping(**mapping, c, cpu).ok());
    EXPECT_EQ(cpu.profile.counters.queries, queries) << options;
    EXPECT_EQ(cpu.profile.counters.index_bytes, (rows + 1) * 8);
    EXPECT_EQ(cpu.profile.visits[static_cast<int>(Stage::kMapQuery)], 1);
    // Only `full` sorts anything here: its queries.
    EXPECT_EQ(cpu.profile.visits[static_cast<int>(Stage::kIndexBuild)],
              options.starts_with("variant=full") ? 2 : 1);
  }
}

TEST(SortedSearchPluginTest, RefusesWithReason) {
  Registry registry = MakeRegistry();
  const auto mapping =
      *registry.mappings().Create("sorted_search:symmetric=true", BackendKind::kCpu);
  const auto odd = *ConvGeometry::Create({});
  const auto even = *ConvGeometry::Create({.kernel = {2, 3, 3}});
  EXPECT_TRUE(mapping->Supports(odd).ok);
  EXPECT_TRUE(mapping->Supports(even).ok);  // symmetry is used where there is one
  EXPECT_FALSE(registry.mappings().Create("sorted_search:source_block=0", BackendKind::kCpu).ok());
  EXPECT_THAT(registry.mappings()
                  .Create("sorted_search:variant=segmented,query_block=64", BackendKind::kCpu)
                  .status()
                  .message(),
              HasSubstr("query_block=64: variant=segmented has none"));
  for (const auto& [options, message] :
       {std::pair("table=offset_major", "table=offset_major: variant=z_walk"),
        std::pair("variant=double_traversed,table=offset_major,symmetric=true",
                  "symmetric=true: table=offset_major"),
        std::pair("variant=double_traversed,table=offset_major", "only CUDA")}) {
    const auto refused =
        registry.mappings().Create(absl::StrCat("sorted_search:", options), BackendKind::kCpu);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(message));
  }
  EXPECT_EQ(RegisterSortedSearchMapping(registry).code(), absl::StatusCode::kAlreadyExists);
}

TEST(SortedSearchPluginTest, OutOfMemoryIsAStatus) {
  const Registry registry = MakeRegistry();
  ASSERT_FALSE(registry.mappings().Variants(BackendKind::kCpu).empty());
  const MapCase c = Submanifold("", RandomVoxels(3000, {0}, 0, 40, {1, 1, 1}, 7), {3, 3, 3});
  for (const std::string& spec : registry.mappings().Variants(BackendKind::kCpu)) {
    UnitCpu cpu(1, /*memory_limit=*/200000);
    const auto map = RunMapping(**registry.mappings().Create(spec, BackendKind::kCpu), c, cpu);
    EXPECT_EQ(map.status().code(), absl::StatusCode::kResourceExhausted) << spec;
  }
}

}  // namespace
}  // namespace voxconv
