// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <tuple>

#include "gmock/gmock.h"
#include "mapping_cases.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/mapping/grid/register.h"

namespace voxconv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Registry GridRegistry() {
  Registry registry;
  EXPECT_TRUE(RegisterGridMapping(registry).ok());
  return registry;
}

class GridMappingCaseTest : public testing::TestWithParam<MapCase> {};

TEST_P(GridMappingCaseTest, EveryVariantFindsExactlyThePairs) {
  const Registry registry = GridRegistry();
  ASSERT_GE(registry.mappings().Variants(BackendKind::kCpu).size(), 4u);
  ExpectExactMaps(registry, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Cases, GridMappingCaseTest, testing::ValuesIn(MapCases()),
                         [](const auto& info) { return info.param.name; });

// Rows of several tasks, whose words are shared between tasks.
TEST(GridMappingTest, StoragesAndThreadsAgreeOnManyRows) {
  const Registry registry = GridRegistry();
  const MapCase c =
      Submanifold("Large", RandomVoxels(100000, {0, 2}, -30, 29, {1, 1, 1}, 9), {3, 1, 1});
  Pairs expected;
  for (const std::string spec :
       {"grid", "grid:storage=bitmap", "grid:storage=bitmap,symmetric=true", "grid:coords=planar",
        "grid:coords=planar,symmetric=true", "grid:storage=rules", "grid:storage=two_stage",
        "grid:storage=two_stage,coords=planar,symmetric=true"}) {
    for (int threads : {1, 2}) {
      UnitCpu cpu(threads);
      const auto map = RunMapping(**registry.mappings().Create(spec, BackendKind::kCpu), c, cpu);
      ASSERT_TRUE(map.ok()) << map.status();
      const Pairs found = PairsOf(*map);
      if (expected.in.empty()) expected = found;
      EXPECT_TRUE(found == expected) << spec;
    }
  }
  EXPECT_GT(expected.in.size(), c.inputs.size());
}

// 512 samples of (2^18)^3 cells: 2^63 cells, whose bytes do not fit 64 bits.
TEST(GridMappingTest, RefusesAnIndexPastTheLimit) {
  const Registry registry = GridRegistry();
  UnitCpu cpu(1);
  const auto set =
      *CoordinateSet::Create({{0, kMinCoordinate, kMinCoordinate, kMinCoordinate},
                              {kMaxBatch, kMaxCoordinate, kMaxCoordinate, kMaxCoordinate}},
                             {1, 1, 1}, cpu.context);
  for (const auto& [spec, mib] : {std::pair<std::string, std::string>{"grid", "35184372088832 MiB"},
                                  {"grid:storage=bitmap", "1649267441665 MiB"}}) {
    const auto index =
        (*registry.mappings().Create(spec, BackendKind::kCpu))->BuildIndex(*set, cpu.context);
    EXPECT_EQ(index.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(index.status().message(),
                AllOf(HasSubstr(mib), HasSubstr("memory_limit_mib=4096")));
  }
}

// 4 GiB of cells, of which a build must write a handful of pages only.
TEST(GridMappingTest, ALargeGridIsOnlyReserved) {
  const Registry registry = GridRegistry();
  UnitCpu cpu(1);
  const ConvGeometry geometry = *ConvGeometry::Create({});
  const auto set = *CoordinateSet::Create(
      {{0, -512, -512, -512}, {0, 0, 0, 0}, {0, 0, 0, 1}, {0, 511, 511, 511}}, {1, 1, 1},
      cpu.context);
  const auto mapping = *registry.mappings().Create("grid", BackendKind::kCpu);
  const auto index = mapping->BuildIndex(*set, cpu.context);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ((*index)->bytes(), 3 * 4096) << "the pages that voxels lie in";
  EXPECT_EQ(mapping->Query(**index, {*set, *set, geometry}, cpu.context)->num_pairs(), 6);
  // The limit is for pages that are written.
  for (const std::string spec :
       {"grid:memory_limit_mib=1", "grid:storage=bitmap,memory_limit_mib=1"}) {
    EXPECT_TRUE(
        (*registry.mappings().Create(spec, BackendKind::kCpu))->BuildIndex(*set, cpu.context).ok())
        << spec;
  }
}

// 512 voxels, each of which lies in a page of its own.
TEST(GridMappingTest, WrittenPagesAreLimited) {
  const Registry registry = GridRegistry();
  UnitCpu cpu(1);
  std::vector<Coordinate> rows;
  rows.reserve(512);
  for (int32_t i = 0; i < 512; ++i) rows.push_back({0, i / 64 * 128, i / 8 % 8 * 128, i % 8 * 128});
  const auto set = *CoordinateSet::Create(rows, {1, 1, 1}, cpu.context);
  const auto build = [&](const std::string& spec) {
    return (*registry.mappings().Create(spec, BackendKind::kCpu))
        ->BuildIndex(*set, cpu.context)
        .status();
  };
  EXPECT_TRUE(build("grid:memory_limit_mib=2").ok());
  const absl::Status refused = build("grid:memory_limit_mib=1");
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("needs 2 MiB, for the pages that 512 voxels lie in"),
                    HasSubstr("memory_limit_mib=1 ")));
  // The same voxels twice as dense as pages are large: counted, not only bounded.
  for (Coordinate& c : rows) c = {0, c.x / 2, c.y / 2, c.z / 32};
  std::sort(rows.begin(), rows.end(), [](const Coordinate& a, const Coordinate& b) {
    return std::tie(a.x, a.y, a.z) < std::tie(b.x, b.y, b.z);
  });
  rows.push_back({0, 1024, 1024, 1024});
  const auto dense = *CoordinateSet::Create(rows, {1, 1, 1}, cpu.context);
  EXPECT_TRUE((*registry.mappings().Create("grid:memory_limit_mib=1", BackendKind::kCpu))
                  ->BuildIndex(*dense, cpu.context)
                  .ok());
}

// The pages that voxels lie in are the backend's memory: its limit and its peak hold for them.
TEST(GridMappingTest, WrittenPagesAreTheBackends) {
  const Registry registry = GridRegistry();
  std::vector<Coordinate> rows;
  rows.reserve(512);
  for (int32_t i = 0; i < 512; ++i) rows.push_back({0, i / 64 * 128, i / 8 % 8 * 128, i % 8 * 128});
  for (const std::string spec : {"grid", "grid:storage=bitmap"}) {
    SCOPED_TRACE(spec);
    const auto mapping = *registry.mappings().Create(spec, BackendKind::kCpu);
    for (const int64_t limit : {int64_t{0}, int64_t{8} << 20, int64_t{1} << 20}) {
      const auto backend = *CpuBackend::Create({.threads = 1, .memory_limit = limit});
      const ExecutionContext context{backend.get(), &backend->main_stream(), nullptr};
      const auto set = *CoordinateSet::Create(rows, {1, 1, 1}, context);
      const int64_t before = backend->BytesInUse();
      const auto index = mapping->BuildIndex(*set, context);
      if (limit == int64_t{1} << 20) {
        EXPECT_EQ(index.status().code(), absl::StatusCode::kResourceExhausted);
        EXPECT_THAT(index.status().message(),
                    AllOf(HasSubstr("grid: out of memory"), HasSubstr("of the limit of 1048576")));
        EXPECT_EQ(backend->BytesInUse(), before);
        continue;
      }
      ASSERT_TRUE(index.ok()) << index.status();
      EXPECT_GE((*index)->bytes(), 512 * 4096);
      EXPECT_EQ(backend->BytesInUse() - before, (*index)->bytes());
      EXPECT_GE(backend->PeakBytes(), (*index)->bytes());
    }
  }
}

// Four arrays are made of the inputs, once, and of outputs that are other voxels.
TEST(GridMappingTest, PlanarCoordinatesAreSplitOnce) {
  const Registry registry = GridRegistry();
  const std::vector<Coordinate> voxels = RandomVoxels(500, {0, 1}, -9, 9, {1, 1, 1}, 3);
  const MapCase submanifold = Submanifold("Submanifold", voxels, {3, 3, 3});
  const MapCase strided = Layer("Strided", voxels, Quantize({2, 2, 2}, {2, 2, 2}));
  const int index_build = static_cast<int>(Stage::kIndexBuild);
  const auto run = [&](const std::string& spec, const MapCase& c, Profile& profile) {
    UnitCpu cpu(1);
    EXPECT_TRUE(RunMapping(**registry.mappings().Create(spec, BackendKind::kCpu), c, cpu).ok());
    profile = cpu.profile;
  };
  Profile interleaved, planar;
  run("grid", submanifold, interleaved);
  run("grid:coords=planar", submanifold, planar);
  EXPECT_EQ(planar.counters.index_bytes - interleaved.counters.index_bytes,
            static_cast<int64_t>(voxels.size()) * 16);
  EXPECT_EQ(planar.visits[index_build], 1);
  run("grid:coords=planar", strided, planar);
  EXPECT_EQ(planar.visits[index_build], 2);
}

TEST(GridMappingTest, RefusesWithReason) {
  Registry registry = GridRegistry();
  const ConvGeometry even = *ConvGeometry::Create({.kernel = {2, 3, 3}});
  const auto symmetric = *registry.mappings().Create("grid:symmetric=true", BackendKind::kCpu);
  EXPECT_TRUE(symmetric->Supports(even).ok);  // used where there is one
  EXPECT_THAT(std::string(registry.mappings()
                              .Create("grid:storage=bitmap,coords=planar", BackendKind::kCpu)
                              .status()
                              .message()),
              HasSubstr("coords=planar: storage=bitmap"));
  EXPECT_THAT(std::string(registry.mappings()
                              .Create("grid:storage=rules,symmetric=true", BackendKind::kCpu)
                              .status()
                              .message()),
              HasSubstr("symmetric=true: storage=rules"));
  // The location table of a strided layer is of its outputs, and made by the query.
  UnitCpu cpu(1);
  const auto two_stage =
      *registry.mappings().Create("grid:storage=two_stage,memory_limit_mib=1", BackendKind::kCpu);
  std::vector<Coordinate> rows;
  rows.reserve(1000);
  for (int32_t i = 0; i < 1000; ++i) rows.push_back({0, 64 * i, 0, 64 * (i % 7)});
  const auto refused =
      RunMapping(*two_stage, Layer("wide", rows, Quantize({2, 2, 2}, {2, 2, 2})), cpu);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("storage=two_stage needs"));
  EXPECT_EQ(RegisterGridMapping(registry).code(), absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace voxconv
