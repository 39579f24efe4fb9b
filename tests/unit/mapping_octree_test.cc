// SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "mapping_cases.h"
#include "voxconv/mapping/octree/octree_cpu.h"
#include "voxconv/mapping/octree/register.h"

namespace voxconv {
namespace {

using ::testing::ElementsAreArray;

Registry MakeRegistry() {
  Registry registry;
  EXPECT_TRUE(RegisterOctreeMapping(registry).ok());
  return registry;
}

class OctreeMappingTest : public testing::TestWithParam<MapCase> {};

TEST_P(OctreeMappingTest, EveryVariantIsExact) {
  const Registry registry = MakeRegistry();
  ASSERT_EQ(registry.mappings().Variants(BackendKind::kCpu).size(), 4u);
  ExpectExactMaps(registry, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Cases, OctreeMappingTest, testing::ValuesIn(MapCases()),
                         [](const auto& info) { return info.param.name; });

template <typename Links>
Octree<Links> Build(const std::vector<Coordinate>& voxels, const Int3& stride, UnitCpu& cpu) {
  const auto set = CoordinateSet::Create(voxels, stride, cpu.context);
  return *BuildOctreeCpu<Links>(**set, cpu.context);
}

int DepthOf(const std::vector<Coordinate>& voxels, const Int3& stride = {1, 1, 1}) {
  UnitCpu cpu(1);
  return Build<LinkWord>(voxels, stride, cpu).cube.depth();
}

TEST(OctreeTest, IsNoDeeperThanTheBoundsNeed) {
  EXPECT_EQ(DepthOf({}), 0);
  EXPECT_EQ(DepthOf({{5, 9, -9, 9}, {7, 9, -9, 9}}), 0);
  EXPECT_EQ(DepthOf({{0, -1, 0, 0}, {0, 0, 0, 0}}), 1);
  EXPECT_EQ(DepthOf({{0, 3, 0, 0}, {0, 4, 0, 0}}), 1);
  EXPECT_EQ(DepthOf({{0, 0, 0, 0}, {0, 0, 7, 0}}), 3);
  EXPECT_EQ(DepthOf({{0, 0, 0, 0}, {0, 0, 8, 0}}), 4);
  // In units of the tensor stride: 0..7, and 0..8.
  EXPECT_EQ(DepthOf({{0, 0, 0, 0}, {0, 0, 21, 0}}, {1, 3, 1}), 3);
  EXPECT_EQ(DepthOf({{0, 0, -24, 0}, {0, 0, 0, 0}}, {1, 3, 1}), 4);
  EXPECT_EQ(DepthOf({{0, 0, 0, kMinCoordinate}, {0, 0, 0, kMaxCoordinate}}), kMaxOctreeDepth);
}

// The first sample has three voxels in a row and one in the opposite corner, the third that one
// only.
TEST(OctreeTest, NodesAndBytes) {
  UnitCpu cpu(1);
  const std::vector<Coordinate> voxels = {
      {0, 7, 7, 7}, {0, 0, 0, 0}, {2, 7, 7, 7}, {0, 2, 0, 0}, {0, 1, 0, 0}};
  const auto tree = Build<LinkWord>(voxels, {1, 1, 1}, cpu);
  ASSERT_EQ(tree.cube.depth(), 3);
  EXPECT_EQ(tree.cube.key_bits(), 11);
  EXPECT_THAT(absl::MakeSpan(tree.levels.nodes).first(4), ElementsAreArray({2, 3, 4, 5}));
  // Words of 32 samples, and of 4 nodes.
  EXPECT_THAT(absl::MakeSpan(tree.levels.begin).first(5), ElementsAreArray({0, 1, 2, 3, 4}));
  EXPECT_EQ(tree.bytes(), 4 * 8 + 5 * 4);
  EXPECT_THAT(tree.rows.host(), ElementsAreArray({1, 4, 3, 0, 2}));
  EXPECT_EQ(tree.links.host()[0].present, 0b101u);
  // Voxels 1 and 4 in octants 0 and 4 (x) of the first node, 3 in the first octant of the second.
  EXPECT_EQ(tree.links.host()[3].present, 0x80800111u);

  const auto all = Build<Link>(voxels, {1, 1, 1}, cpu);
  EXPECT_EQ(all.levels.nodes, tree.levels.nodes);
  EXPECT_EQ(all.bytes(), 4 * (3 + 8 * (2 + 3 + 4)));
  EXPECT_THAT(all.links.host().first(3), testing::SizeIs(3));
  EXPECT_EQ(all.links.host()[1].child, -1);
  EXPECT_EQ(all.links.host()[2].child, 1);
}

TEST(OctreeTest, EmptyHasNoBytesAndNoVoxels) {
  UnitCpu cpu(1);
  const auto tree = Build<LinkWord>({}, {1, 1, 1}, cpu);
  EXPECT_EQ(tree.bytes(), 0);
  EXPECT_EQ(tree.View().Find({0, 0, 0, 0}), -1);
}

template <typename Links>
void ExpectFindsVoxelsAndNothingElse(const std::vector<Coordinate>& voxels, const Int3& stride,
                                     const std::vector<Coordinate>& queries) {
  UnitCpu cpu(2);
  const auto tree = Build<Links>(voxels, stride, cpu);
  const OctreeView<Links> view = tree.View();
  std::map<Coordinate, int32_t> row_of;
  for (size_t i = 0; i < voxels.size(); ++i) row_of[voxels[i]] = static_cast<int32_t>(i);
  for (const Coordinate& q : queries) {
    const auto it = row_of.find(q);
    ASSERT_EQ(view.Find(q), it == row_of.end() ? -1 : it->second)
        << q.b << " " << q.x << " " << q.y << " " << q.z;
  }
}

// Around the bounds, and between the points of a lattice with strides that are no powers of two.
TEST(OctreeTest, FindsVoxelsAndNothingElse) {
  const Int3 stride{3, 1, 4};
  std::vector<Coordinate> voxels = RandomVoxels(300, {0, 3, 40}, -12, 12, stride, 2);
  voxels.push_back({2, 3, -5, 0});
  std::vector<Coordinate> queries;
  for (int32_t b : {-1, 0, 1, 2, 3, 31, 32, 40, 41, kMaxBatch}) {
    for (int32_t i = 0; i < 31 * 31 * 31; ++i) {
      queries.push_back({b, i / 961 - 15, i / 31 % 31 - 15, i % 31 - 15});
    }
  }
  ExpectFindsVoxelsAndNothingElse<LinkWord>(voxels, stride, queries);
  ExpectFindsVoxelsAndNothingElse<Link>(voxels, stride, queries);
}

// Both ends of the range of every axis and of the batch, and what lies next to them, outside too.
TEST(OctreeTest, EndsOfTheRange) {
  const std::vector<Coordinate> voxels = RangeEnds();
  std::vector<Coordinate> queries = {{0, INT32_MAX, INT32_MIN, 0}, {0, INT32_MIN, 0, INT32_MAX}};
  for (const Coordinate& c : voxels) {
    for (int32_t i = 0; i < 27; ++i) {
      queries.push_back({c.b, c.x + i / 9 - 1, c.y + i / 3 % 3 - 1, c.z + i % 3 - 1});
    }
  }
  ExpectFindsVoxelsAndNothingElse<LinkWord>(voxels, {1, 1, 1}, queries);
  ExpectFindsVoxelsAndNothingElse<Link>(voxels, {1, 1, 1}, queries);
}

// Rows of several tasks, which share words and nodes.
TEST(OctreeTest, DoesNotDependOnTheNumberOfThreads) {
  const std::vector<Coordinate> voxels = RandomVoxels(30000, {0, 2}, -40, 39, {1, 1, 1}, 9);
  std::vector<std::vector<uint64_t>> bytes;
  for (int threads : {1, 2}) {
    UnitCpu cpu(threads);
    const auto tree = Build<LinkWord>(voxels, {1, 1, 1}, cpu);
    std::vector<uint64_t>& words = bytes.emplace_back();
    for (const LinkWord& word : tree.links.host()) {
      words.push_back(uint64_t{word.present} << 32 | word.first);
    }
    EXPECT_EQ(tree.levels.nodes[0], 2);
    EXPECT_LE(tree.levels.nodes[6], 2 * 40 * 40 * 40);
  }
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST(OctreePluginTest, CountsAndOptions) {
  Registry registry = MakeRegistry();
  const MapCase c = Submanifold("", RandomVoxels(50, {0}, 0, 5, {1, 1, 1}, 6), {3, 3, 3});
  UnitCpu cpu(1);
  const auto mapping = *registry.mappings().Create("octree:symmetric=true", BackendKind::kCpu);
  ASSERT_TRUE(RunMapping(*mapping, c, cpu).ok());
  EXPECT_EQ(cpu.profile.counters.queries, 13 * static_cast<int64_t>(c.inputs.size()));
  EXPECT_EQ(cpu.profile.visits[static_cast<int>(Stage::kMapQuery)], 1);
  EXPECT_FALSE(registry.mappings().Create("octree:children=nine", BackendKind::kCpu).ok());
  EXPECT_EQ(RegisterOctreeMapping(registry).code(), absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace voxconv
