// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/row_order.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tbb/parallel_sort.h"
#include "voxconv/core/check.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/random.h"

namespace voxconv {
namespace {

constexpr std::array kOrders = {RowOrder::kScan, RowOrder::kSorted, RowOrder::kShuffled,
                                RowOrder::kMorton};

// Moves bit i of the axis's bits to bit 3 i.
constexpr uint64_t Spread(uint64_t bits) {
  static_assert(kKeyAxisBits <= 21);
  bits = (bits | bits << 32) & 0x001f00000000ffff;
  bits = (bits | bits << 16) & 0x001f0000ff0000ff;
  bits = (bits | bits << 8) & 0x100f00f00f00f00f;
  bits = (bits | bits << 4) & 0x10c30c30c30c30c3;
  return (bits | bits << 2) & 0x1249249249249249;
}

// The batch index above the interleaved bits of x, y, z. Axes count from kMinCoordinate, so that
// negative coordinates come before positive ones.
constexpr uint64_t MortonKey(const Coordinate& c) {
  static_assert(kKeyBatchBits + 3 * kKeyAxisBits <= 64);
  const auto axis = [](int32_t value) {
    return Spread(static_cast<uint64_t>(int64_t{value} - kMinCoordinate));
  };
  return static_cast<uint64_t>(c.b) << (3 * kKeyAxisBits) | axis(c.x) << 2 | axis(c.y) << 1 |
         axis(c.z);
}

template <typename Key>
std::vector<int64_t> SortedBy(absl::Span<const Coordinate> coords, const Key& key) {
  std::vector<std::pair<uint64_t, int64_t>> keyed(coords.size());
  for (size_t row = 0; row < coords.size(); ++row) keyed[row] = {key(coords[row]), row};
  tbb::parallel_sort(keyed.begin(), keyed.end());
  std::vector<int64_t> rows(coords.size());
  std::transform(keyed.begin(), keyed.end(), rows.begin(),
                 [](const auto& entry) { return entry.second; });
  return rows;
}

}  // namespace

absl::string_view ToString(RowOrder order) {
  switch (order) {
    case RowOrder::kScan:
      return "scan";
    case RowOrder::kSorted:
      return "sorted";
    case RowOrder::kShuffled:
      return "shuffled";
    case RowOrder::kMorton:
      return "morton";
  }
  VOXCONV_CHECK(false);
  return "";
}

absl::StatusOr<RowOrder> ParseRowOrder(absl::string_view text) {
  for (const RowOrder order : kOrders) {
    if (text == ToString(order)) return order;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "order '", absl::CEscape(text), "': allowed are scan, sorted, shuffled and morton"));
}

std::vector<int64_t> OrderRows(absl::Span<const Coordinate> coords, RowOrder order, uint64_t seed) {
  if (order == RowOrder::kSorted) return SortedBy(coords, PackKey);
  if (order == RowOrder::kMorton) return SortedBy(coords, MortonKey);
  std::vector<int64_t> rows(coords.size());
  std::iota(rows.begin(), rows.end(), int64_t{0});
  if (order == RowOrder::kScan) return rows;
  Random random(seed);
  for (size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[random.Below(i)]);
  return rows;
}

}  // namespace voxconv
