// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/implicit_gemm/rarest_order.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/numeric/bits.h"
#include "voxconv/dataflows/implicit_gemm/mask_order.h"

namespace voxconv {
namespace {

template <typename Visit>
void ForEachOffset(const uint32_t* mask, int words, Visit&& visit) {
  for (int w = 0; w < words; ++w) {
    for (uint32_t rest = mask[w]; rest != 0; rest &= rest - 1) {
      visit(w * 32 + absl::countr_zero(rest));
    }
  }
}

// rank[i] of every i < counts.size(): most frequent first, of equals the lower.
std::vector<int32_t> RanksOf(const std::vector<int64_t>& counts) {
  std::vector<int32_t> by_rank(counts.size()), rank(counts.size());
  std::iota(by_rank.begin(), by_rank.end(), 0);
  std::stable_sort(by_rank.begin(), by_rank.end(),
                   [&](int32_t a, int32_t b) { return counts[a] > counts[b]; });
  for (size_t i = 0; i < by_rank.size(); ++i) rank[by_rank[i]] = static_cast<int32_t>(i);
  return rank;
}

class OffsetRanks {
 public:
  OffsetRanks(const uint32_t* masks, int64_t rows, int words, int num_offsets) : words_(words) {
    const int64_t sampled = std::min(rows, kMaxRankedRows);
    std::vector<int64_t> counts(num_offsets, 0);
    for (int64_t i = 0; i < sampled; ++i) {
      ForEachOffset(masks + RankedRow(i, rows) * words, words, [&](int k) { ++counts[k]; });
    }
    place_ = RanksOf(counts);
    if (words > 1) return;
    std::vector<std::vector<int64_t>> beside(num_offsets);  // [place of the rarest][place]
    for (int r = 0; r < num_offsets; ++r) beside[r].resize(r, 0);
    for (int64_t i = 0; i < sampled; ++i) {
      const uint32_t* mask = masks + RankedRow(i, rows) * words;
      const int32_t rarest = RarestPlace(mask);
      ForEachOffset(mask, words, [&](int k) {
        if (place_[k] < rarest) ++beside[rarest][place_[k]];
      });
    }
    for (const std::vector<int64_t>& rows_beside : beside) rank_.push_back(RanksOf(rows_beside));
  }

  uint32_t KeyOf(const uint32_t* mask) const {
    const int32_t rarest = RarestPlace(mask);
    int32_t second = -1;
    ForEachOffset(mask, words_, [&](int k) {
      const int32_t place = place_[k];
      if (place < rarest) second = std::max(second, rank_.empty() ? place : rank_[rarest][place]);
    });
    return RarestKey(rarest, second);
  }

 private:
  int32_t RarestPlace(const uint32_t* mask) const {
    int32_t rarest = -1;
    ForEachOffset(mask, words_, [&](int k) { rarest = std::max(rarest, place_[k]); });
    return rarest;
  }

  int words_;
  std::vector<int32_t> place_;              // of each offset
  std::vector<std::vector<int32_t>> rank_;  // [place of the rarest][place]; empty: words > 1
};

}  // namespace

void MakeRarestKeys(const uint32_t* masks, int64_t rows, int words, int num_offsets,
                    uint64_t* keys) {
  const OffsetRanks ranks(masks, rows, words, num_offsets);
  for (int64_t row = 0; row < rows; ++row) keys[row] = ranks.KeyOf(masks + row * words);
}

}  // namespace voxconv
