#include <string>

#include "gmock/gmock.h"
#include "mapping/hash/register.h"
#include "mapping_cases.h"

namespace voxconv {
namespace {

using ::testing::HasSubstr;

Registry HashRegistry() {
  Registry registry;
  EXPECT_TRUE(RegisterHashMapping(registry).ok());
  return registry;
}

TEST(HashMappingTest, EveryVariantFindsExactlyThePairs) {
  const Registry registry = HashRegistry();
  EXPECT_GE(registry.mappings().Variants().size(), 8u);
  for (const std::string& spec : registry.mappings().Variants()) ExpectExactMaps(registry, spec);
}

// Many regions, chunks, groups and their remainders; unsorted rows.
TEST(HashMappingTest, VariantsAgreeOnManyRows) {
  const Registry registry = HashRegistry();
  const ConvGeometry geometry = *ConvGeometry::Create(
      Params(ConvKind::kSubmanifold, OutputRule::kQuantize, {3, 3, 1}, {1, 1, 1}));
  const std::vector<Coordinate> rows = RandomRows(60000, 40, {1, 1, 1}, {-20, -20, -20}, 9);
  Pairs expected;
  for (const std::string spec :
       {"hash:variant=std", "hash", "hash:load_factor=0.95", "hash:load_factor=0.05",
        "hash:variant=cuckoo", "hash:variant=cuckoo,load_factor=0.95", "hash:symmetric=true"}) {
    for (int threads : {1, 2}) {
      Cpu cpu(threads);
      const auto mapping = *registry.mappings().Create(spec);
      const auto set = *CoordinateSet::Create(rows, {1, 1, 1}, cpu.context);
      const auto index = mapping->BuildIndex(*set, cpu.context);
      ASSERT_TRUE(index.ok()) << index.status();
      const auto map = mapping->Query(**index, {*set, *set, geometry}, cpu.context);
      ASSERT_TRUE(map.ok()) << map.status();
      const Pairs found{map->offset_ptr(), *CopyToHost(map->As<PairList>().in, cpu.context),
                        *CopyToHost(map->As<PairList>().out, cpu.context)};
      if (expected.in.empty()) expected = found;
      EXPECT_TRUE(found == expected) << spec;
      EXPECT_EQ(cpu.profile.counters.queries,
                static_cast<int64_t>(rows.size()) * (spec == "hash:symmetric=true" ? 4 : 9));
    }
  }
  EXPECT_GT(expected.in.size(), rows.size());
}

TEST(HashMappingTest, RefusesWithReason) {
  const Registry registry = HashRegistry();
  const ConvGeometry even = *ConvGeometry::Create(
      Params(ConvKind::kSubmanifold, OutputRule::kQuantize, {2, 3, 3}, {1, 1, 1}));
  const auto plain = *registry.mappings().Create("hash");
  EXPECT_TRUE(plain->Supports(even, BackendKind::kCpu).ok);
  EXPECT_THAT(plain->Supports(even, BackendKind::kCuda).reason, HasSubstr("CUDA"));
  const auto symmetric = *registry.mappings().Create("hash:symmetric=true");
  EXPECT_TRUE(symmetric->Supports(even, BackendKind::kCpu).ok);  // used where there is one
  EXPECT_THAT(registry.mappings().Create("hash:variant=std,load_factor=0.7").status().message(),
              HasSubstr("load_factor=0.7"));
  Registry twice = HashRegistry();
  EXPECT_EQ(RegisterHashMapping(twice).code(), absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace voxconv
