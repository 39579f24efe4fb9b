// SPDX-License-Identifier: Apache-2.0
// Sort keys of output rows, on the host and in device code. The order is this project's own:
// docs/decisions/2026-11-21-rows-by-their-rarest-offsets.md.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_MASK_ORDER_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_MASK_ORDER_H_

#include <cstdint>

namespace voxconv {

// MaskOrder::kRarest puts rows with the same two rarest offsets next to each other. A tile runs an
// offset for all its rows, so that an offset of few rows costs the most. Each split ranks its own
// offsets, by a sample of its rows.
// - An offset's place is its rank by the number of rows that have it. The most frequent offset is
//   first. Of two equally frequent offsets, the lower one is first. A row's rarest offset is its
//   offset of the highest place.
// - The second rarest offset is found among the row's other offsets. They are ranked by the rows
//   with the same rarest offset, because different offsets go together in different rows. Of two
//   equally frequent offsets, the one of lower place is first. In masks of several words, the
//   second rarest offset is simply the offset of the next highest place.

// The i-th row of the sample, for i < min(rows, kMaxRankedRows). The sample has groups of
// neighbouring rows, because their masks of one word share a memory sector. The groups are spread
// evenly over all rows.
inline constexpr int64_t kMaxRankedRows = 2048;
constexpr int64_t RankedRow(int64_t i, int64_t rows) {
  constexpr uint64_t kGroup = 8, kGroups = kMaxRankedRows / kGroup;
  if (rows <= kMaxRankedRows) return i;
  const uint64_t at = static_cast<uint64_t>(i), groups = static_cast<uint64_t>(rows) / kGroup;
  return static_cast<int64_t>(at / kGroup * groups / kGroups * kGroup + at % kGroup);
}

// The key of a row. `rarest` is the place of its rarest offset, and `second` < `rarest` is the rank
// of its second rarest (-1 = none). Keys ascend by `rarest`. Within one place they ascend or
// descend by `second`, in turn from place to place, so that the rows on both sides of a border
// between two places are similar.
constexpr uint32_t RarestKey(int32_t rarest, int32_t second) {
  if (rarest < 0) return 0;
  const uint32_t a = static_cast<uint32_t>(rarest), b = static_cast<uint32_t>(second + 1);
  return 1 + a * (a + 1) / 2 + (a % 2 == 0 ? b : a - b);
}

// The number of keys for `num_offsets` offsets. Keys are below it.
constexpr int64_t NumRarestKeys(int64_t num_offsets) {
  return 1 + num_offsets * (num_offsets + 1) / 2;
}

// The key of MaskOrder::kGray for a mask of `num_offsets` offsets. Rows of at most kFewOffsets
// offsets come first. Within both groups keys ascend by the rank of the mask in the sequence of
// reflected Gray codes. Of few offsets there are few masks, so that rows with the same mask fill
// whole tiles. Rows of more offsets would cut these tiles apart. They come last, because the
// kernels begin with the last rows, and tiles of many offsets cost the most. Where a mask fills the
// whole key, the key is the rank alone.
template <typename Key>
constexpr Key GrayKey(Key mask, int num_offsets) {
  constexpr int kFewOffsets = 3;
  Key rank = mask, rest = mask;
  for (int shift = 4 * sizeof(Key); shift > 0; shift /= 2) rank ^= rank >> shift;
  for (int i = 0; i < kFewOffsets; ++i) rest &= rest - 1;
  constexpr int kKeyBits = 8 * sizeof(Key);
  return rest != 0 && num_offsets < kKeyBits ? rank | Key{1} << num_offsets : rank;
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_MASK_ORDER_H_
