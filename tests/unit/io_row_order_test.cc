// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "io_test_util.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/random.h"
#include "voxconv/io/row_order.h"

namespace voxconv {
namespace {

using testing::ElementsAre;

std::vector<Coordinate> InOrder(const std::vector<Coordinate>& coords, RowOrder order,
                                uint64_t seed = 0) {
  std::vector<Coordinate> ordered;
  for (const int64_t row : OrderRows(coords, order, seed)) ordered.push_back(coords[row]);
  return ordered;
}

// Distinct voxels of two samples that reach both ends of the range.
std::vector<Coordinate> Rows() {
  Random random(3);
  std::set<Coordinate> distinct;
  for (const int32_t end : {kMinCoordinate, -1, 0, kMaxCoordinate}) {
    distinct.insert({kMaxBatch, end, 0, end});
    distinct.insert({0, 0, end, -1});
  }
  for (int i = 0; i < 500; ++i) {
    const auto axis = [&] {
      const uint64_t range = i % 2 == 0 ? 8 : uint64_t{1} << kKeyAxisBits;
      return static_cast<int32_t>(random.Below(range)) - static_cast<int32_t>(range / 2);
    };
    distinct.insert({i % 3, axis(), axis(), axis()});
  }
  std::vector<Coordinate> rows(distinct.begin(), distinct.end());
  std::reverse(rows.begin(), rows.end());
  return rows;
}

// The definition, bit by bit: the axis with the highest bit in which the two differ decides, x
// before y before z where it is the same bit.
bool BeforeOnZCurve(const Coordinate& p, const Coordinate& q) {
  if (p.b != q.b) return p.b < q.b;
  for (int bit = kKeyAxisBits - 1; bit >= 0; --bit) {
    for (int32_t Coordinate::*axis : {&Coordinate::x, &Coordinate::y, &Coordinate::z}) {
      const int32_t a = (p.*axis - kMinCoordinate) >> bit & 1;
      const int32_t b = (q.*axis - kMinCoordinate) >> bit & 1;
      if (a != b) return a < b;
    }
  }
  return false;
}

TEST(RowOrder, NamesAreReadAsWritten) {
  for (const char* name : {"scan", "sorted", "shuffled", "morton"}) {
    EXPECT_EQ(ToString(*ParseRowOrder(name)), name);
  }
  EXPECT_THAT(ParseRowOrder("zorder"),
              FailsWith(kInvalid, "order 'zorder': allowed are scan, sorted, shuffled and morton"));
  EXPECT_THAT(ParseRowOrder(""), FailsWith(kInvalid, "order ''"));
}

TEST(RowOrder, ScanIsAsGivenAndSortedAscends) {
  const std::vector<Coordinate> rows = Rows();
  EXPECT_EQ(InOrder(rows, RowOrder::kScan), rows);
  std::vector<Coordinate> sorted = rows;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(InOrder(rows, RowOrder::kSorted), sorted);
  for (const RowOrder order : {RowOrder::kScan, RowOrder::kSorted, RowOrder::kShuffled}) {
    EXPECT_TRUE(OrderRows({}, order, 0).empty());
  }
}

TEST(RowOrder, MortonFollowsTheZCurve) {
  std::vector<Coordinate> expected = Rows();
  std::sort(expected.begin(), expected.end(), BeforeOnZCurve);
  EXPECT_EQ(InOrder(Rows(), RowOrder::kMorton), expected);
  // Across 0, where the sign changes, and over the whole of the range.
  EXPECT_THAT(InOrder({{0, 0, 0, 0},
                       {0, -1, -1, -1},
                       {0, kMaxCoordinate, 0, 0},
                       {0, kMinCoordinate, 0, 0},
                       {0, 0, 0, 1},
                       {0, 0, 1, 0},
                       {0, 1, 0, 0}},
                      RowOrder::kMorton),
              ElementsAre(Coordinate{0, -1, -1, -1}, Coordinate{0, kMinCoordinate, 0, 0},
                          Coordinate{0, 0, 0, 0}, Coordinate{0, 0, 0, 1}, Coordinate{0, 0, 1, 0},
                          Coordinate{0, 1, 0, 0}, Coordinate{0, kMaxCoordinate, 0, 0}));
}

TEST(RowOrder, ShuffledIsAPermutationThatTheSeedFixes) {
  const std::vector<Coordinate> rows = Rows();
  std::vector<int64_t> places = OrderRows(rows, RowOrder::kShuffled, 0);
  EXPECT_EQ(OrderRows(rows, RowOrder::kShuffled, 0), places);
  EXPECT_NE(OrderRows(rows, RowOrder::kShuffled, 1), places);
  std::sort(places.begin(), places.end());
  for (size_t i = 0; i < places.size(); ++i) ASSERT_EQ(places[i], i);
  // A change here changes every result measured on shuffled rows.
  EXPECT_THAT(OrderRows(absl::MakeConstSpan(rows).first(8), RowOrder::kShuffled, 0),
              ElementsAre(4, 5, 2, 0, 7, 1, 3, 6));
}

}  // namespace
}  // namespace voxconv
