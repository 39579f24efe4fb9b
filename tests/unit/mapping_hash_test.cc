// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "gmock/gmock.h"
#include "mapping_cases.h"
#include "voxconv/mapping/hash/register.h"

namespace voxconv {
namespace {

using ::testing::HasSubstr;

Registry HashRegistry() {
  Registry registry;
  EXPECT_TRUE(RegisterHashMapping(registry).ok());
  return registry;
}

class HashMappingCaseTest : public testing::TestWithParam<MapCase> {};

TEST_P(HashMappingCaseTest, EveryVariantFindsExactlyThePairs) {
  const Registry registry = HashRegistry();
  ASSERT_GE(registry.mappings().Variants(BackendKind::kCpu).size(), 10u);
  ExpectExactMaps(registry, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Cases, HashMappingCaseTest, testing::ValuesIn(MapCases()),
                         [](const auto& info) { return info.param.name; });

// Many regions, chunks, groups and their remainders; unsorted rows.
TEST(HashMappingTest, VariantsAgreeOnManyRows) {
  const Registry registry = HashRegistry();
  const MapCase c =
      Submanifold("Large", RandomVoxels(30000, {0, 2}, -20, 19, {1, 1, 1}, 9), {3, 3, 1});
  Pairs expected;
  for (const std::string spec :
       {"hash:variant=std", "hash", "hash:load_factor=0.95", "hash:load_factor=0.05",
        "hash:variant=cuckoo", "hash:variant=cuckoo,load_factor=0.95", "hash:variant=minkowski",
        "hash:variant=minkowski,load_factor=0.95", "hash:variant=torchsparse1",
        "hash:variant=pcengine", "hash:coords=planar", "hash:symmetric=true"}) {
    for (int threads : {1, 2}) {
      UnitCpu cpu(threads);
      const auto map = RunMapping(**registry.mappings().Create(spec, BackendKind::kCpu), c, cpu);
      ASSERT_TRUE(map.ok()) << map.status();
      const Pairs found = PairsOf(*map);
      if (expected.in.empty()) expected = found;
      EXPECT_TRUE(found == expected) << spec;
      EXPECT_EQ(cpu.profile.counters.queries,
                static_cast<int64_t>(c.inputs.size()) * (spec == "hash:symmetric=true" ? 4 : 9));
    }
  }
  EXPECT_GT(expected.in.size(), c.inputs.size());
}

// FNV-1a's low bits come from the low bits of the words alone, so voxels of a large stride share
// few buckets of 512. Where more buckets do not help, the table is refused.
TEST(HashMappingTest, FullBucketsLoseNothing) {
  const Registry registry = HashRegistry();
  for (const int32_t stride : {1, 16, 64, 4096}) {
    const MapCase c = Submanifold(
        "Strided", RandomVoxels(20000, {0}, -16 * stride, 15 * stride, {stride, stride, stride}, 5),
        {3, 3, 3});
    UnitCpu theirs(1), ours(1);
    const auto run = [&](const std::string& spec, UnitCpu& cpu) {
      return RunMapping(**registry.mappings().Create(spec, BackendKind::kCpu), c, cpu);
    };
    const auto expected = run("hash", theirs), map = run("hash:variant=torchsparse1", ours);
    if (stride == 4096) {
      EXPECT_EQ(map.status().code(), absl::StatusCode::kResourceExhausted) << map.status();
      EXPECT_THAT(map.status().message(), HasSubstr("variant=torchsparse1 found no place for"));
      continue;
    }
    ASSERT_TRUE(map.ok()) << map.status();
    EXPECT_TRUE(PairsOf(*map) == PairsOf(*expected)) << stride;
  }
}

TEST(HashMappingTest, RefusesWithReason) {
  const Registry registry = HashRegistry();
  const ConvGeometry even = *ConvGeometry::Create({.kernel = {2, 3, 3}});
  const auto plain = *registry.mappings().Create("hash", BackendKind::kCpu);
  EXPECT_TRUE(plain->Supports(even).ok);
  const auto symmetric = *registry.mappings().Create("hash:symmetric=true", BackendKind::kCpu);
  EXPECT_TRUE(symmetric->Supports(even).ok);  // used where there is one
  for (const std::string variant : {"bricks", "bucketed"}) {
    const auto mapping = *registry.mappings().Create("hash:variant=" + variant, BackendKind::kCpu);
    EXPECT_EQ(mapping->Supports(even).reason,
              "hash: variant=" + variant + " has no CPU implementation");
  }
  EXPECT_THAT(registry.mappings()
                  .Create("hash:variant=std,load_factor=0.7", BackendKind::kCpu)
                  .status()
                  .message(),
              HasSubstr("load_factor=0.7"));
  EXPECT_THAT(registry.mappings()
                  .Create("hash:variant=cuckoo,coords=planar", BackendKind::kCpu)
                  .status()
                  .message(),
              HasSubstr("coords=planar: variant=cuckoo"));
  Registry twice = HashRegistry();
  EXPECT_EQ(RegisterHashMapping(twice).code(), absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace voxconv
