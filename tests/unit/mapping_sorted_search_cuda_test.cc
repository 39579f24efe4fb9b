// SPDX-License-Identifier: Apache-2.0
// What the verify matrix does not have: sizes and spreads that are sorted in other ways, and more
// kernel offsets than one launch takes.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "unit_cuda.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/mapping/sorted_search/register.h"
#include "voxconv/mapping/sorted_search/sorted_keys_cuda.h"
#include "voxconv/mapping/sorted_search/sorted_search_cuda.h"

namespace voxconv {
namespace {

// `size` cells of a cube of 128^3, in no order, half of them in each of two batches.
std::vector<Coordinate> ShuffledCube(int64_t size) {
  std::vector<Coordinate> rows;
  for (int64_t i = 0; i < size; ++i) {
    const int32_t cell = static_cast<int32_t>(i * 1000003 % (1 << 21));
    rows.push_back(
        {static_cast<int32_t>(i % 2), (cell >> 14) - 64, (cell >> 7) % 128 - 64, cell % 128 - 64});
  }
  return rows;
}

void ExpectSorted(const std::vector<Coordinate>& rows) {
  VOXCONV_NEED_CUDA(cuda);
  const auto voxels = CoordinateSet::Create(rows, {1, 1, 1}, cuda->context);
  ASSERT_TRUE(voxels.ok()) << voxels.status();
  const auto sorted = BuildSortedKeysCuda(**voxels, cuda->context);
  ASSERT_TRUE(sorted.ok()) << sorted.status();
  const std::vector<uint64_t> keys = *CopyToHost(sorted->keys, cuda->context);
  const std::vector<int32_t> row_at = *CopyToHost(sorted->rows, cuda->context);
  ASSERT_EQ(keys.size(), rows.size() + 1);
  ASSERT_EQ(row_at.size(), rows.size());
  std::vector<uint64_t> expected;
  expected.reserve(rows.size() + 1);
  for (const Coordinate& row : rows) expected.push_back(SearchKey(row));
  for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(keys[i], expected[row_at[i]]) << i;
  std::sort(expected.begin(), expected.end());
  expected.push_back(kEndKey);
  EXPECT_EQ(keys, expected);
}

constexpr Coordinate kFarAway{1, kMaxCoordinate, kMaxCoordinate, kMaxCoordinate};

TEST(SortedKeysCudaTest, Bins) { ExpectSorted(ShuffledCube(20000)); }

TEST(SortedKeysCudaTest, OneCrowdedBin) {
  std::vector<Coordinate> rows = ShuffledCube(20000);
  rows.insert(rows.begin(), kFarAway);
  ExpectSorted(rows);
}

TEST(SortedKeysCudaTest, RadixSort) { ExpectSorted(ShuffledCube((1 << 18) + 1)); }

TEST(SortedKeysCudaTest, RadixSortOfLongKeys) {
  std::vector<Coordinate> rows = ShuffledCube((1 << 18) + 1);
  rows.insert(rows.begin() + 1000, kFarAway);
  ExpectSorted(rows);
}

// [N, K], for a submanifold convolution.
std::vector<int32_t> ExpectedTable(const std::vector<Coordinate>& rows,
                                   const ConvGeometry& geometry) {
  std::map<Coordinate, int32_t> row_of;
  for (size_t i = 0; i < rows.size(); ++i) row_of[rows[i]] = static_cast<int32_t>(i);
  std::vector<int32_t> table;
  for (const Coordinate& q : rows) {
    for (const Int3& d : geometry.input_offsets()) {
      const auto found = row_of.find({q.b, q.x + d.x, q.y + d.y, q.z + d.z});
      table.push_back(found == row_of.end() ? -1 : found->second);
    }
  }
  return table;
}

// A map of 7^3 offsets, which are more than a launch takes, on 300 of the 2,048 cells of a box.
class ManyOffsets {
 public:
  explicit ManyOffsets(const ExecutionContext& context) : context_(context) {
    for (int32_t i = 0; i < 300; ++i) {
      const int32_t cell = i * 701 % 2048;
      rows_.push_back({0, cell / 256, cell / 16 % 16, cell % 16});
    }
    voxels_ = *CoordinateSet::Create(rows_, {1, 1, 1}, context);
  }
  MapProblem problem() const { return {*voxels_, *voxels_, geometry_}; }

  void Expect(const absl::StatusOr<KernelMap>& map) const {
    ASSERT_TRUE(map.ok()) << map.status();
    const std::vector<int32_t> expected = ExpectedTable(rows_, geometry_);
    const auto as_table = context_.backend->map_ops().To(MapForm::kNeighbourTable, *map, context_);
    ASSERT_TRUE(as_table.ok()) << as_table.status();
    const NeighbourTable& found = as_table->table();
    EXPECT_EQ(*CopyToHost(found.table.array(), context_), expected);
    if (map->form() == MapForm::kPairs) {  // which have no masks
      EXPECT_TRUE(map->Validate(context_).ok());
      return;
    }
    const std::vector<uint32_t> masks = *CopyToHost(found.masks.array(), context_);
    constexpr int kWords = 11;  // ceil(343 / 32)
    ASSERT_EQ(masks.size(), rows_.size() * kWords);
    for (size_t i = 0; i < expected.size(); ++i) {
      const size_t row = i / 343, k = i % 343;
      ASSERT_EQ(masks[row * kWords + k / 32] >> k % 32 & 1u, expected[i] >= 0) << row << " " << k;
    }
  }

 private:
  ExecutionContext context_;
  std::vector<Coordinate> rows_;
  CoordinateSetPtr voxels_;
  ConvGeometry geometry_ = *ConvGeometry::Create({.kernel = {7, 7, 7}});
};

TEST(SortedSearchCudaTest, MoreOffsetsThanALaunchTakes) {
  VOXCONV_NEED_CUDA(cuda);
  const ManyOffsets offsets(cuda->context);
  Registry registry;
  ASSERT_TRUE(RegisterSortedSearchMapping(registry).ok());
  ASSERT_TRUE(RegisterSortedSearchMappingCuda(registry).ok());
  for (const std::string& spec : registry.mappings().Variants(BackendKind::kCuda)) {
    SCOPED_TRACE(spec);
    const auto mapping = *registry.mappings().Create(spec, BackendKind::kCuda);
    const auto index = *mapping->BuildIndex(offsets.problem().inputs, cuda->context);
    offsets.Expect(mapping->Query(*index, offsets.problem(), cuda->context));
  }
}

TEST(SortedSearchCudaTest, FullWithWideNames) {
  VOXCONV_NEED_CUDA(cuda);
  const ManyOffsets offsets(cuda->context);
  const MapProblem problem = offsets.problem();
  const SortedKeysCuda source = *BuildSortedKeysCuda(problem.inputs, cuda->context);
  for (const bool symmetric : {false, true}) {
    SCOPED_TRACE(symmetric);
    offsets.Expect(FullSearch({problem, source, symmetric}, cuda->context, /*most_narrow=*/0));
  }
}

}  // namespace
}  // namespace voxconv
