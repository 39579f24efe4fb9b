// Keys by which output rows are ordered, on the host and in device code. The order is this
// project's own: docs/decisions/2026-11-21-rows-by-their-rarest-offsets.md.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_MASK_ORDER_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_MASK_ORDER_H_

#include <cstdint>

namespace voxconv {

// MaskOrder::kRarest puts rows together that have the same two rarest offsets: those decide which
// offsets a tile runs for few rows. Ranks are of the offsets of one split, found in a sample of its
// rows:
// - An offset's place is its rank by the number of rows that have it, the most frequent first, of
//   equals the lower offset. A row's rarest offset is that of its highest place.
// - The second rarest is found among the row's other offsets, by rank among the rows with the same
//   rarest offset (which offsets go together is not the same everywhere), of equals the one of
//   lower place first. In masks of several words it is that of the next place.

// Rows of the sample: RankedRow(i, rows) for i < min(rows, kMaxRankedRows). Groups of neighbours,
// whose masks of one word share a memory sector, spread evenly.
inline constexpr int64_t kMaxRankedRows = 2048;
constexpr int64_t RankedRow(int64_t i, int64_t rows) {
  constexpr uint64_t kGroup = 8, kGroups = kMaxRankedRows / kGroup;
  if (rows <= kMaxRankedRows) return i;
  const uint64_t at = static_cast<uint64_t>(i), groups = static_cast<uint64_t>(rows) / kGroup;
  return static_cast<int64_t>(at / kGroup * groups / kGroups * kGroup + at % kGroup);
}

// The key of a row whose rarest offset has place `rarest` and whose second rarest has rank
// `second`, below `rarest` (-1: none). Ordered by `rarest`; then by `second`, upwards and downwards
// in turn, so that a tile with rows of two places has similar ones.
constexpr uint32_t RarestKey(int32_t rarest, int32_t second) {
  if (rarest < 0) return 0;
  const uint32_t a = static_cast<uint32_t>(rarest), b = static_cast<uint32_t>(second + 1);
  return 1 + a * (a + 1) / 2 + (a % 2 == 0 ? b : a - b);
}

// Keys of `num_offsets` offsets.
constexpr int64_t NumRarestKeys(int64_t num_offsets) {
  return 1 + num_offsets * (num_offsets + 1) / 2;
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_MASK_ORDER_H_
