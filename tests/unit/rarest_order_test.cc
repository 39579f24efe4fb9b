// SPDX-License-Identifier: Apache-2.0
// The order of rows by their rarest offsets (mask_order.h) on the host.
#include "voxconv/dataflows/implicit_gemm/rarest_order.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "voxconv/dataflows/implicit_gemm/mask_order.h"

namespace voxconv {
namespace {

std::vector<uint64_t> KeysOf(const std::vector<uint32_t>& masks, int words, int num_offsets) {
  const auto rows = static_cast<int64_t>(masks.size()) / words;
  std::vector<uint64_t> keys(rows);
  MakeRarestKeys(masks.data(), rows, words, num_offsets, keys.data());
  return keys;
}

TEST(RarestOrderTest, KeysAreDenseAndTurn) {
  constexpr int kOffsets = 27;
  std::set<uint32_t> keys = {RarestKey(-1, -1)};
  for (int rarest = 0; rarest < kOffsets; ++rarest) {
    for (int second = -1; second < rarest; ++second) keys.insert(RarestKey(rarest, second));
    if (rarest == 0) continue;
    EXPECT_EQ(RarestKey(rarest, -1) < RarestKey(rarest, rarest - 1), rarest % 2 == 0) << rarest;
  }
  EXPECT_EQ(keys.size(), NumRarestKeys(kOffsets));
  EXPECT_EQ(*keys.rbegin(), NumRarestKeys(kOffsets) - 1);
}

TEST(RarestOrderTest, SamplesRowsOnceEach) {
  for (const int64_t rows : {int64_t{1}, kMaxRankedRows - 1, kMaxRankedRows, kMaxRankedRows + 1,
                             int64_t{100003}, int64_t{INT32_MAX}}) {
    int64_t last = -1;
    for (int64_t i = 0; i < std::min(rows, kMaxRankedRows); ++i) {
      const int64_t row = RankedRow(i, rows);
      ASSERT_GT(row, last) << rows;
      last = row;
    }
    EXPECT_LT(last, rows);
  }
}

// Offset 0 is in every row, 1 and 2 in many, 3 in few. With 3, offset 1 is rarer than 2, though it
// is the more frequent one of all rows.
TEST(RarestOrderTest, SecondIsRarestAmongRowsWithTheSameRarest) {
  std::vector<uint32_t> masks;
  masks.insert(masks.end(), 40, 0b0011);
  masks.insert(masks.end(), 30, 0b0101);
  masks.insert(masks.end(), 6, 0b1101);
  masks.insert(masks.end(), 2, 0b1111);
  const std::vector<uint64_t> keys = KeysOf(masks, 1, 4);
  // Places: 0, 1, 2, 3. Among rows with 3: 0 has rank 0, 2 has rank 1, 1 has rank 2.
  EXPECT_EQ(keys[0], RarestKey(1, 0));
  EXPECT_EQ(keys[40], RarestKey(2, 0));
  EXPECT_EQ(keys[70], RarestKey(3, 1));
  EXPECT_EQ(keys[76], RarestKey(3, 2));
}

TEST(RarestOrderTest, ManyOffsetsGoByPlacesAlone) {
  constexpr int kOffsets = 40, kWords = 2;
  std::vector<uint32_t> masks;
  for (int row = 0; row < 100; ++row) {  // offset k in rows below 100 - k
    uint64_t mask = 0;
    for (int k = 0; k < kOffsets; ++k) mask |= uint64_t{row < 100 - k} << k;
    masks.push_back(static_cast<uint32_t>(mask));
    masks.push_back(static_cast<uint32_t>(mask >> 32));
  }
  masks.insert(masks.end(), {0, 0});
  const std::vector<uint64_t> keys = KeysOf(masks, kWords, kOffsets);
  EXPECT_EQ(keys[0], RarestKey(39, 38));
  EXPECT_EQ(keys[80], RarestKey(19, 18));
  EXPECT_EQ(keys[99], RarestKey(0, -1));
  EXPECT_EQ(keys[100], RarestKey(-1, -1));
}

TEST(GrayKeyTest, MasksOfFewOffsetsComeFirstBothByTheirRank) {
  constexpr int kOffsets = 9;
  for (uint32_t rank = 0; rank < 1u << kOffsets; ++rank) {
    const uint32_t mask = rank ^ rank >> 1;  // the code of that rank
    const uint32_t many = std::popcount(mask) > 3 ? 1u << kOffsets : 0;
    EXPECT_EQ(GrayKey(mask, kOffsets), many + rank);
    EXPECT_EQ(GrayKey(uint64_t{mask}, kOffsets), many + rank);
  }
}

TEST(GrayKeyTest, AFullKeyIsTheRankAlone) {
  EXPECT_EQ(GrayKey(0xC0000000u, 32), 0x80000000u);
  EXPECT_EQ(GrayKey(0xFu, 31), 0x8000000Au);
  EXPECT_EQ(GrayKey(0xFu, 32), 0xAu);
  EXPECT_EQ(GrayKey(uint64_t{0xF}, 33), uint64_t{1} << 33 | 0xA);
  EXPECT_EQ(GrayKey(uint64_t{0xF}, 64), 0xAu);
  EXPECT_EQ(GrayKey(uint64_t{0xF}, 70), 0xAu);
}

}  // namespace
}  // namespace voxconv
