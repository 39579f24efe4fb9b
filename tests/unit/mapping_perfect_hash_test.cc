// SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "mapping_cases.h"
#include "voxconv/mapping/perfect_hash/psh_cpu.h"
#include "voxconv/mapping/perfect_hash/register.h"

namespace voxconv {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

Registry MakeRegistry() {
  Registry registry;
  EXPECT_TRUE(RegisterPerfectHashMapping(registry).ok());
  return registry;
}

class PerfectHashTest : public testing::TestWithParam<MapCase> {};

TEST_P(PerfectHashTest, EveryVariantIsExact) {
  const Registry registry = MakeRegistry();
  ASSERT_EQ(registry.mappings().Variants(BackendKind::kCpu).size(), 7u);
  ExpectExactMaps(registry, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Cases, PerfectHashTest, testing::ValuesIn(MapCases()),
                         [](const auto& info) { return info.param.name; });

std::vector<PshVoxel> ToPsh(const std::vector<Coordinate>& voxels) {
  std::vector<PshVoxel> psh;
  for (const Coordinate& c : voxels) {
    psh.push_back(
        {static_cast<uint32_t>(c.x), static_cast<uint32_t>(c.y), static_cast<uint32_t>(c.z)});
  }
  return psh;
}

// Equation 1, evaluated from the tables' definition.
uint32_t Slot(const PshHash& hash, const PshVoxel& p) {
  const uint32_t m = hash.m_bar, r = hash.r_bar;
  const uint32_t phi = hash.phi[((p[0] % r) * r + p[1] % r) * r + p[2] % r];
  const uint32_t x = (p[0] % m + (phi >> 20)) % m;
  const uint32_t y = (p[1] % m + (phi >> 10 & 1023)) % m;
  const uint32_t z = (p[2] % m + (phi & 1023)) % m;
  return (x * m + y) * m + z;
}

void ExpectPerfect(const std::vector<PshVoxel>& voxels, const PshHash& hash) {
  std::set<uint32_t> slots;
  for (size_t i = 0; i < voxels.size(); ++i) {
    ASSERT_EQ(hash.slot[i], Slot(hash, voxels[i]));
    slots.insert(hash.slot[i]);
  }
  EXPECT_EQ(slots.size(), voxels.size());
}

TEST(PshBuilderTest, IsInjectiveAndNearlyMinimal) {
  for (int count : {1, 2, 7, 8, 9, 500, 20000}) {
    SCOPED_TRACE(count);
    const std::vector<PshVoxel> voxels = ToPsh(RandomVoxels(count, {0}, 0, 2000, {1, 1, 1}, count));
    const auto hash = BuildPshHash(voxels, {});
    ASSERT_TRUE(hash.ok()) << hash.status();
    ExpectPerfect(voxels, *hash);
    // Minimal: the next smaller cube would not hold the voxels.
    EXPECT_LT(int64_t{hash->m_bar - 1} * (hash->m_bar - 1) * (hash->m_bar - 1), count);
  }
}

TEST(PshBuilderTest, FullAndFlatBlocks) {
  for (const auto& [x, y, z] : {std::tuple{16, 16, 16}, {70, 70, 1}, {40, 12, 3}, {1, 1, 900}}) {
    std::vector<PshVoxel> voxels;
    for (uint32_t i = 0; i < uint32_t(x * y * z); ++i)
      voxels.push_back({i / (y * z), i / z % y, i % z});
    const auto hash = BuildPshHash(voxels, {});
    ASSERT_TRUE(hash.ok()) << hash.status();
    ExpectPerfect(voxels, *hash);
  }
}

TEST(PshBuilderTest, LoadAndDeterminism) {
  const std::vector<PshVoxel> voxels = ToPsh(RandomVoxels(3000, {0}, 0, 300, {1, 1, 1}, 1));
  const auto tight = BuildPshHash(voxels, {});
  const auto loose = BuildPshHash(voxels, {.load = 0.5});
  ASSERT_TRUE(tight.ok() && loose.ok());
  EXPECT_EQ(tight->m_bar, 15);
  EXPECT_EQ(loose->m_bar, 19);
  const auto again = BuildPshHash(voxels, {});
  EXPECT_EQ(again->phi, tight->phi);
  EXPECT_EQ(again->slot, tight->slot);
}

TEST(PshBuilderTest, FailureNamesTheTables) {
  // Agree modulo m_bar = 2 and r_bar = 1, so that the first try must fail.
  const std::vector<PshVoxel> voxels = {{0, 0, 0}, {2, 0, 0}};
  const auto status = BuildPshHash(voxels, {.max_retries = 0}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("n = 2 voxels: none found in 1 tries, the last with m_bar 2 and r_bar 1"));
  const auto retried = BuildPshHash(voxels, {.max_retries = 1});
  ASSERT_TRUE(retried.ok()) << retried.status();
  EXPECT_EQ(retried->tries, 2);
}

TEST(PshBuilderTest, VoxelsThatAgreeModuloManySizes) {
  const uint32_t d = 2 * 3 * 5 * 7 * 11 * 13 * 4;
  std::vector<PshVoxel> voxels;
  for (uint32_t i = 0; i < 2; ++i) voxels.push_back({i * d, 2 * i * d, 0});
  const auto hash = BuildPshHash(voxels, {});
  ASSERT_TRUE(hash.ok()) << hash.status();
  ExpectPerfect(voxels, *hash);
}

TEST(SuperPshTest, FindsVoxelsAndNothingElse) {
  UnitCpu cpu(2);
  // Sample 1 has no voxels, sample 2 one.
  std::vector<Coordinate> voxels = RandomVoxels(400, {0, 3}, -9, 9, {1, 1, 1}, 2);
  voxels.push_back({2, 5, -5, 0});
  const auto set = CoordinateSet::Create(voxels, {1, 1, 1}, cpu.context);
  const auto psh = SuperPsh::Build(**set, {}, cpu.context);
  ASSERT_TRUE(psh.ok()) << psh.status();
  std::map<Coordinate, int32_t> row_of;
  for (size_t i = 0; i < voxels.size(); ++i) row_of[voxels[i]] = static_cast<int32_t>(i);
  for (int b = -1; b <= 4; ++b) {
    for (int i = 0; i < 21 * 21 * 21; ++i) {
      const Int3 p{i / 441 - 10, i / 21 % 21 - 10, i % 21 - 10};
      const auto it = row_of.find({b, p.x, p.y, p.z});
      ASSERT_EQ(psh->Find(b, p), it == row_of.end() ? -1 : it->second);
    }
  }
  EXPECT_EQ(psh->Find(0, {INT32_MAX, INT32_MIN, 0}), -1);

  ASSERT_EQ(psh->sizes().size(), 4u);
  EXPECT_EQ(psh->sizes()[1].slots(), 0);
  EXPECT_EQ(psh->sizes()[2].slots(), 1);
  EXPECT_EQ(psh->n().back(), static_cast<int64_t>(voxels.size()));
  EXPECT_EQ(psh->m()[4] - psh->m()[3], psh->sizes()[3].slots());
  EXPECT_EQ(psh->v().host()[psh->m()[3]], 3);
  EXPECT_THAT(psh->h().host().subspan(psh->m()[2], 1), Each(row_of[voxels.back()]));
  EXPECT_TRUE(psh->has_narrow_tags());
  EXPECT_EQ(psh->bytes(), psh->m().back() * (4 + 2 + 6) + psh->r().back() * 4 + 3 * 5 * 8);
}

TEST(SuperPshTest, WideSamplesTakeWideTags) {
  UnitCpu cpu(1);
  for (int32_t x : {65535, 65536, 131071}) {
    const std::vector<Coordinate> voxels = {{0, 0, 0, 0}, {0, x, 0, 0}};
    const auto set = CoordinateSet::Create(voxels, {1, 1, 1}, cpu.context);
    const auto psh = SuperPsh::Build(**set, {}, cpu.context);
    ASSERT_TRUE(psh.ok());
    EXPECT_EQ(psh->has_narrow_tags(), x == 65535);
    EXPECT_EQ(psh->Find(0, {x, 0, 0}), 1);
    EXPECT_EQ(psh->Find(0, {x - 65536, 0, 0}), x == 65536 ? 0 : -1);
  }
}

// H-CNN Algorithm 1: rows are looked up when they are asked for, and only those.
TEST(PerfectHashPluginTest, LooksUpOnDemand) {
  const Registry registry = MakeRegistry();
  const MapCase c = Submanifold("", RandomVoxels(50, {0}, 0, 5, {1, 1, 1}, 6), {3, 3, 3});
  UnitCpu cpu(2);
  const auto mapping = *registry.mappings().Create("perfect_hash:map=lookup", BackendKind::kCpu);
  const auto built = *registry.mappings().Create("perfect_hash", BackendKind::kCpu);
  const KernelMap map = *RunMapping(*mapping, c, cpu);
  EXPECT_EQ(map.form(), MapForm::kLookup);
  EXPECT_FALSE(map.counts_known());
  EXPECT_EQ(cpu.profile.counters.queries, 0);
  const auto rows = static_cast<int64_t>(c.inputs.size());
  EXPECT_GE(map.bytes(), cpu.profile.counters.index_bytes + rows * 16);

  constexpr int64_t kFirst = 7, kCount = 11;
  std::vector<int32_t> found(kCount * 27, -2);
  ASSERT_TRUE(map.lookup().Find(kFirst, kCount, found.data(), cpu.context).ok());
  EXPECT_EQ(cpu.profile.counters.queries, kCount * 27);
  UnitCpu other(1);
  const KernelMap whole = *other.backend->map_ops().To(
      MapForm::kNeighbourTable, *RunMapping(*built, c, other), other.context);
  const auto table = whole.table().table.array().host();
  EXPECT_THAT(found, ::testing::ElementsAreArray(table.subspan(kFirst * 27, kCount * 27)));
}

TEST(PerfectHashPluginTest, CountsAndRefusals) {
  Registry registry = MakeRegistry();
  const MapCase c = Submanifold("", RandomVoxels(50, {0}, 0, 5, {1, 1, 1}, 6), {3, 3, 3});
  UnitCpu cpu(1);
  const auto mapping =
      *registry.mappings().Create("perfect_hash:symmetric=true", BackendKind::kCpu);
  ASSERT_TRUE(RunMapping(*mapping, c, cpu).ok());
  EXPECT_EQ(cpu.profile.counters.queries, 13 * static_cast<int64_t>(c.inputs.size()));
  EXPECT_GT(cpu.profile.counters.index_bytes, 0);
  EXPECT_EQ(cpu.profile.visits[static_cast<int>(Stage::kIndexBuild)], 1);
  EXPECT_EQ(cpu.profile.visits[static_cast<int>(Stage::kMapQuery)], 1);

  const auto even = *ConvGeometry::Create({.kernel = {2, 3, 3}});
  EXPECT_TRUE(mapping->Supports(even).ok);  // symmetry is used where there is one
  const auto device = *registry.mappings().Create("perfect_hash:build=device", BackendKind::kCpu);
  EXPECT_EQ(device->Supports(even).reason, "perfect_hash: build=device has no CPU implementation");
  EXPECT_FALSE(registry.mappings().Create("perfect_hash:load=0", BackendKind::kCpu).ok());
  EXPECT_THAT(std::string(registry.mappings()
                              .Create("perfect_hash:map=lookup,symmetric=true", BackendKind::kCpu)
                              .status()
                              .message()),
              HasSubstr("symmetric=true with map=lookup: only a map that is built has pairs"));
  EXPECT_EQ(RegisterPerfectHashMapping(registry).code(), absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace voxconv
