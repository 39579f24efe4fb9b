// Keys by which kMaskSorted orders output rows, on the host and in device code. The order is this
// project's own: docs/decisions/2026-11-21-rows-by-their-rarest-offsets.md.
#ifndef VOXCONV_CORE_MASK_ORDER_H_
#define VOXCONV_CORE_MASK_ORDER_H_

#include <cstdint>

namespace voxconv {

// MaskOrder::kRarest puts rows together that have the same two rarest offsets: those decide which
// offsets a tile runs for few rows. An offset's place is its rank by the number of rows that have
// it, the most frequent first (of equals the lower offset), among the offsets of its split.
//
// The key of a row whose rarest offset has place `rarest` and whose next has place `second` (-1:
// none): ordered by `rarest`, then by `second`.
constexpr uint32_t RarestKey(int32_t rarest, int32_t second) {
  if (rarest < 0) return 0;
  const uint32_t a = static_cast<uint32_t>(rarest);
  return 1 + a * (a + 1) / 2 + static_cast<uint32_t>(second + 1);
}

// Keys of `num_offsets` offsets.
constexpr int64_t NumRarestKeys(int64_t num_offsets) {
  return 1 + num_offsets * (num_offsets + 1) / 2;
}

}  // namespace voxconv

#endif  // VOXCONV_CORE_MASK_ORDER_H_
