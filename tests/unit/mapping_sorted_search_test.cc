#include "gmock/gmock.h"
#include "mapping/sorted_search/register.h"
#include "mapping_search_cases.h"

namespace voxconv {
namespace {

using ::testing::HasSubstr;

Registry MakeRegistry() {
  Registry registry;
  EXPECT_TRUE(RegisterSortedSearchMapping(registry).ok());
  return registry;
}

class SortedSearchTest : public testing::TestWithParam<MappingCase> {};

TEST_P(SortedSearchTest, EveryVariantIsExact) {
  const Registry registry = MakeRegistry();
  const std::vector<std::string> variants = registry.mappings().Variants();
  ASSERT_GE(variants.size(), 12u);
  for (const std::string& spec : variants) ExpectExactMap(registry, spec, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Cases, SortedSearchTest, testing::ValuesIn(MappingCases()),
                         [](const auto& info) { return info.param.name; });

// More rows than one block of the pair collector has.
TEST(SortedSearchLargeTest, VariantsAgreeAcrossBlocks) {
  const Registry registry = MakeRegistry();
  for (bool sorted : {true, false}) {
    std::vector<Coordinate> voxels = RandomVoxels(12000, {0, 1}, -20, 20, {1, 1, 1}, 5);
    if (sorted) voxels = Sorted(std::move(voxels));
    const MappingCase c = Submanifold("Large", std::move(voxels), {3, 3, 3});
    const auto geometry = ConvGeometry::Create(c.geometry);
    Triples expected;
    for (const std::string& spec : registry.mappings().Variants()) {
      SCOPED_TRACE(spec);
      CpuSession session(2);
      const auto map = RunMapping(**registry.mappings().Create(spec), c, *geometry, session);
      ASSERT_TRUE(map.ok()) << map.status();
      ASSERT_TRUE(map->Validate(session.context).ok());
      const Triples triples = MapTriples(*map);
      if (expected.empty()) expected = triples;
      ASSERT_GT(triples.size(), 100000u);
      EXPECT_TRUE(triples == expected);
    }
  }
}

TEST(SortedSearchPluginTest, CountsQueriesAndStages) {
  const Registry registry = MakeRegistry();
  const MappingCase c =
      Submanifold("", Sorted(RandomVoxels(50, {0}, 0, 5, {1, 1, 1}, 6)), {3, 3, 3});
  const auto geometry = ConvGeometry::Create(c.geometry);
  const int64_t rows = c.inputs.size();
  for (const auto& [options, queries] : {std::pair<std::string, int64_t>{"", 27 * rows},
                                         {"symmetric=true", 13 * rows},
                                         {"variant=full,symmetric=true", 13 * rows},
                                         {"variant=naive", 27 * rows}}) {
    CpuSession session(1);
    const auto mapping = registry.mappings().Create("sorted_search:" + options);
    ASSERT_TRUE(RunMapping(**mapping, c, *geometry, session).ok());
    EXPECT_EQ(session.profile.counters.queries, queries) << options;
    EXPECT_EQ(session.profile.counters.index_bytes, (rows + 1) * 8);
    EXPECT_EQ(session.profile.visits[static_cast<int>(Stage::kMapQuery)], 1);
    // Only `full` sorts anything here: its queries.
    EXPECT_EQ(session.profile.visits[static_cast<int>(Stage::kIndexBuild)],
              options.starts_with("variant=full") ? 2 : 1);
  }
}

TEST(SortedSearchPluginTest, RefusesWithReason) {
  Registry registry = MakeRegistry();
  const auto mapping = *registry.mappings().Create("sorted_search:symmetric=true");
  const auto odd = *ConvGeometry::Create({});
  const auto even = *ConvGeometry::Create({.kernel = {2, 3, 3}});
  EXPECT_TRUE(mapping->Supports(odd, BackendKind::kCpu).ok);
  EXPECT_TRUE(
      mapping->Supports(even, BackendKind::kCpu).ok);  // symmetry is used where there is one
  EXPECT_THAT(mapping->Supports(odd, BackendKind::kCuda).reason, HasSubstr("CUDA"));
  EXPECT_FALSE(registry.mappings().Create("sorted_search:source_block=0").ok());
  EXPECT_EQ(RegisterSortedSearchMapping(registry).code(), absl::StatusCode::kAlreadyExists);
}

TEST(SortedSearchPluginTest, OutOfMemoryIsAStatus) {
  const Registry registry = MakeRegistry();
  const MappingCase c = Submanifold("", RandomVoxels(3000, {0}, 0, 40, {1, 1, 1}, 7), {3, 3, 3});
  const auto geometry = ConvGeometry::Create(c.geometry);
  for (const std::string& spec : registry.mappings().Variants()) {
    CpuSession session(1);
    session.backend = *CpuBackend::Create({.threads = 1, .memory_limit = 200000});
    session.context = {session.backend.get(), &session.backend->main_stream(), nullptr};
    const auto map = RunMapping(**registry.mappings().Create(spec), c, *geometry, session);
    EXPECT_EQ(map.status().code(), absl::StatusCode::kResourceExhausted) << spec;
  }
}

}  // namespace
}  // namespace voxconv
