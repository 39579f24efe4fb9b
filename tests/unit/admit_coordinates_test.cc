// SPDX-License-Identifier: Apache-2.0
// Coordinates in a backend's memory become a set as those on the host do.
#include <algorithm>
#include <utility>

#include "voxconv/core/coordinate_key.h"
#include "voxel_ops_test_util.h"

namespace voxconv {
namespace {

using Rows = std::vector<Coordinate>;

class AdmitCoordinatesTest : public VoxelOpsTest {
 protected:
  absl::StatusOr<CoordinateSetPtr> Admit(const Rows& rows, const Int3& stride = {1, 1, 1}) {
    const Array<Coordinate> placed = *CopyToBackend<Coordinate>(rows, context_);
    return ops().AdmitCoordinates(placed.data(), placed.size(), stride, context_);
  }

  void ExpectAsOnHost(const Rows& rows, const Int3& stride = {1, 1, 1}) {
    const absl::StatusOr<CoordinateSetPtr> set = Admit(rows, stride);
    const absl::StatusOr<CoordinateSetPtr> expected = CoordinateSet::Create(rows, stride, context_);
    ASSERT_EQ(set.status(), expected.status());
    if (!expected.ok()) return;
    EXPECT_EQ(*CopyToHost((*set)->rows(), context_), rows);
    EXPECT_EQ((*set)->tensor_stride(), stride);
    EXPECT_EQ((*set)->bounds(), (*expected)->bounds());
    EXPECT_EQ((*set)->num_batches(), (*expected)->num_batches());
    EXPECT_EQ((*set)->sorted(), (*expected)->sorted());
  }
};

// Different rows of both signs and several batches, in ascending order.
Rows DifferentRows(int count, int32_t step = 1) {
  Random random(7);
  Rows rows;
  while (static_cast<int>(rows.size()) < count) {
    const auto draw = [&](uint64_t most) { return static_cast<int32_t>(random.Below(most)); };
    for (int i = 0; i < count; ++i) {
      rows.push_back(
          {draw(3), step * (draw(200) - 100), step * (draw(200) - 150), step * draw(50)});
    }
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  }
  rows.resize(count);
  return rows;
}

TEST_P(AdmitCoordinatesTest, AreTheHosts) {
  for (const int count : {0, 1, 31, 32, 33, 256, 257, 20000}) {
    Rows rows = DifferentRows(count);
    ExpectAsOnHost(rows);
    std::reverse(rows.begin(), rows.end());
    ExpectAsOnHost(rows);
    if (count > 40) std::swap(rows[5], rows[37]);
    ExpectAsOnHost(rows);
  }
  ExpectAsOnHost(DifferentRows(1000, 4), {4, 2, 1});
  ExpectAsOnHost({{kMaxBatch, kMinCoordinate, kMaxCoordinate, 0}});
}

TEST_P(AdmitCoordinatesTest, RefusesWithTheHostsMessage) {
  const Rows rows = DifferentRows(3000);
  const auto with = [&](size_t row, const Coordinate& value) {
    Rows changed = rows;
    changed[row] = value;
    return changed;
  };
  ExpectAsOnHost(with(2999, {0, kMaxCoordinate + 1, 0, 0}));
  ExpectAsOnHost(with(0, {0, 0, 0, kMinCoordinate - 1}));
  ExpectAsOnHost(with(17, {-1, 0, 0, 0}));
  ExpectAsOnHost(with(17, {kMaxBatch + 1, 0, 0, 0}));
  ExpectAsOnHost(with(17, {INT32_MIN, INT32_MIN, INT32_MAX, INT32_MIN}));
  ExpectAsOnHost(with(2000, rows[3]));     // far from the row that it repeats
  ExpectAsOnHost(with(2000, rows[1999]));  // beside it
  ExpectAsOnHost({{0, 2, 4, 6}, {0, 2, 4, 7}}, {2, 2, 2});
  ExpectAsOnHost(rows, {1, 0, 1});
  ExpectAsOnHost({}, {1, 1, -2});
  EXPECT_FALSE(Admit(with(2000, rows[3])).ok());
}

VOXCONV_ON_EVERY_BACKEND(AdmitCoordinatesTest);

}  // namespace
}  // namespace voxconv
