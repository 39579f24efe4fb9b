// SPDX-License-Identifier: Apache-2.0
// What `voxconv verify` does not see of the octree on CUDA: that the tree is the CPU's.
#include <cstring>

#include "mapping_cases.h"
#include "unit_cuda.h"
#include "voxconv/mapping/octree/octree_cpu.h"
#include "voxconv/mapping/octree/octree_cuda.h"

namespace voxconv {
namespace {

template <typename T>
bool SameBytes(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <typename Links>
void ExpectTreesOfBothBackendsAgree(const std::vector<Coordinate>& voxels, const Int3& stride,
                                    UnitCuda& cuda) {
  UnitCpu cpu(1);
  const auto host = *CoordinateSet::Create(voxels, stride, cpu.context);
  const auto device = *CoordinateSet::Create(voxels, stride, cuda.context);
  const auto expected = *BuildOctreeCpu<Links>(*host, cpu.context);
  const auto tree = BuildOctreeCuda<Links>(*device, cuda.context);
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(tree->cube.depth(), expected.cube.depth());
  EXPECT_EQ(tree->levels.nodes, expected.levels.nodes);
  EXPECT_EQ(tree->levels.begin, expected.levels.begin);
  EXPECT_EQ(tree->bytes(), expected.bytes());
  EXPECT_TRUE(
      SameBytes(*CopyToHost(tree->links, cuda.context), *CopyToHost(expected.links, cpu.context)));
  EXPECT_EQ(*CopyToHost(tree->rows, cuda.context), *CopyToHost(expected.rows, cpu.context));
}

TEST(OctreeCudaTest, TreesOfBothBackendsAgree) {
  VOXCONV_NEED_CUDA(cuda);
  const Int3 one{1, 1, 1};
  for (const auto& [voxels, stride] : {
           std::pair{std::vector<Coordinate>{}, one},
           {{{kMaxBatch, -7, 0, 9}}, one},
           {{{3, 1, 1, 1}, {40, 1, 1, 1}, {41, 1, 1, 1}}, one},
           {RangeEnds(), one},
           {RandomVoxels(500, {0, 3, 40}, -12, 12, {3, 1, 4}, 2), {3, 1, 4}},
           // Keys of 32 bits and of 64, and nodes of many blocks.
           {RandomVoxels(40000, {0, 2}, -40, 39, one, 9), one},
           {RandomVoxels(40000, {0, 2}, -4000, 4000, one, 9), one},
       }) {
    SCOPED_TRACE(voxels.size());
    ExpectTreesOfBothBackendsAgree<LinkWord>(voxels, stride, *cuda);
    ExpectTreesOfBothBackendsAgree<Link>(voxels, stride, *cuda);
  }
}

}  // namespace
}  // namespace voxconv
