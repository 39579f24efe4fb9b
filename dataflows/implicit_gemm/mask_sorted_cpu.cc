// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <utility>

#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/dataflows/implicit_gemm/mask_order.h"
#include "voxconv/dataflows/implicit_gemm/mask_sorted.h"
#include "voxconv/dataflows/implicit_gemm/rarest_order.h"

namespace voxconv {
namespace {

constexpr int64_t kRowsPerTask = 4096;

// The sort key of a row's mask, most significant word first. Of a mask longer than 64 bits only
// the first 64 offsets order the rows: order is a matter of speed, not of results.
uint64_t MaskSortKey(const uint32_t* mask, int words, int num_offsets, MaskOrder order) {
  uint64_t key = mask[0];
  if (words > 1) key |= uint64_t{mask[1]} << 32;
  if (order != MaskOrder::kGray) return key;
  return words == 1 ? GrayKey(mask[0], num_offsets) : GrayKey(key, num_offsets);
}

// Masks of the offsets [first, last) of each row.
void FillMasks(const KernelMap& map, int32_t first, int32_t last, int words, uint32_t* masks,
               const ExecutionContext& context) {
  const int32_t* table = map.table().table.data();
  ParallelRanges(context, map.num_outputs(), kRowsPerTask, [&](int64_t begin, int64_t end) {
    std::fill(masks + begin * words, masks + end * words, 0);
    for (int64_t row = begin; row < end; ++row) {
      const int32_t* entry = table + row * map.num_offsets();
      for (int32_t k = first; k < last; ++k) {
        const int bit = k - first;
        masks[row * words + bit / 32] |= static_cast<uint32_t>(entry[k] >= 0) << bit % 32;
      }
    }
  });
}

absl::Status OrderRows(const uint32_t* masks, int64_t rows, int words, int num_offsets,
                       MaskOrder order, int32_t* row_order, const ExecutionContext& context) {
  std::iota(row_order, row_order + rows, 0);
  if (order == MaskOrder::kNone) return absl::OkStatus();
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> key_of_row, AllocateArray<uint64_t>(rows, context));
  uint64_t* keys = key_of_row.data();
  if (order == MaskOrder::kRarest) {
    MakeRarestKeys(masks, rows, words, num_offsets, keys);
  } else {
    for (int64_t row = 0; row < rows; ++row) {
      keys[row] = MaskSortKey(masks + row * words, words, num_offsets, order);
    }
  }
  // Stable, so that rows of one mask stay in order and neighbours in memory.
  std::stable_sort(row_order, row_order + rows,
                   [&](int32_t a, int32_t b) { return keys[a] < keys[b]; });
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MaskSortedArrays> SortMasksCpu(const KernelMap& table, const MaskSortedRule& rule,
                                              const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(MaskSortedArrays result,
                           MaskSortedArrays::Cut(table.num_offsets(), rule.splits));
  const int64_t rows = table.num_outputs();
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> masks,
                           AllocateArray<uint32_t>(rule.splits * rows * result.words, context));
  VOXCONV_ASSIGN_OR_RETURN(result.row_order, AllocateArray<int32_t>(rule.splits * rows, context));
  for (int s = 0; s < rule.splits; ++s) {
    const int32_t first = result.split_ptr[s], last = result.split_ptr[s + 1];
    uint32_t* split_masks = masks.data() + s * rows * result.words;
    FillMasks(table, first, last, result.words, split_masks, context);
    VOXCONV_RETURN_IF_ERROR(OrderRows(split_masks, rows, result.words, last - first, rule.order,
                                      result.row_order.data() + s * rows, context));
  }
  result.masks = std::move(masks);
  return result;
}

}  // namespace voxconv
