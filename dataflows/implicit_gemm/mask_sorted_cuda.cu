// SPDX-License-Identifier: Apache-2.0
// Masks of every split, and the rows in their order.
#include <algorithm>
#include <utility>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_primitives.h"
#include "voxconv/backends/cuda/row_masks.h"
#include "voxconv/dataflows/implicit_gemm/bucket_order.h"
#include "voxconv/dataflows/implicit_gemm/mask_order.h"
#include "voxconv/dataflows/implicit_gemm/mask_sorted.h"

namespace voxconv {
namespace {

constexpr int kBlock = 256;

// Keys as on the CPU (mask_sorted_cpu.cc): the mask or its GrayKey; of a mask longer than 64 bits
// the first 64.
template <typename Key>
__global__ void MakeMaskKeys(const uint32_t* masks, int64_t rows, int words, int bits, bool gray,
                             Key* keys) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  Key key = masks[row * words];
  if constexpr (sizeof(Key) == 8) key |= Key{masks[row * words + 1]} << 32;
  keys[row] = gray ? GrayKey(key, bits) : key;
}

// Orders the rows of one split of `bits` offsets. A GrayKey has one bit more than its mask.
template <typename Key>
absl::Status OrderRows(const uint32_t* masks, int64_t rows, int words, int bits, MaskOrder order,
                       int32_t* row_order, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<Key> keys, AllocateArray<Key>(rows, context));
  const bool gray = order == MaskOrder::kGray;
  VOXCONV_LAUNCH(MakeMaskKeys<Key>, GridFor(rows, kBlock), kBlock, 0, context, masks, rows, words,
                 bits, gray, keys.data());
  // Stable, so that rows of one mask stay in order and neighbours in memory.
  return SortByKey(keys.data(), /*sorted_keys=*/nullptr, /*values=*/nullptr, row_order, rows,
                   std::clamp<int>(bits + (gray ? 1 : 0), 1, 8 * sizeof(Key)), context);
}

absl::Status OrderSplit(const MaskSortedArrays& result, int s, MaskOrder order, int64_t rows,
                        int32_t* row_order, const ExecutionContext& context) {
  if (order == MaskOrder::kNone) {
    VOXCONV_RETURN_IF_ERROR(FillWithIndex(row_order, rows, context));
    return absl::OkStatus();
  }
  const uint32_t* masks = result.masks.data() + s * rows * result.words;
  const int bits = result.split_ptr[s + 1] - result.split_ptr[s];
  if (order == MaskOrder::kRarest) {
    return OrderByRarest(masks, rows, result.words, bits, row_order, context);
  }
  if (order == MaskOrder::kMask && bits <= kMaxShortMaskBits && result.words == 1) {
    return OrderByShortMask(masks, rows, bits, row_order, context);
  }
  return result.words == 1
             ? OrderRows<uint32_t>(masks, rows, 1, bits, order, row_order, context)
             : OrderRows<uint64_t>(masks, rows, result.words, bits, order, row_order, context);
}

// What OrderTable reads and writes of one split; all in device memory but for the offsets.
struct SplitTable {
  const int32_t* table;  // [rows, K]
  const uint32_t* masks;
  const int32_t* order;
  int32_t* ordered_table;  // [K, rows]
  uint32_t* ordered_masks;
  int64_t rows;
  int num_offsets;  // K
  int words;
  int first, last;  // offsets
};

constexpr int kOrderRows = 128;
constexpr int kOrderOffsets = 32;
constexpr int kRowsOfWarp = kOrderRows / (kBlock / 32);
static_assert(kRowsOfWarp <= 32);

// Copies the masks of a warp's rows, of which lane j has row j; -1: none. Called by whole warps.
__device__ void OrderMasks(const SplitTable& split, int64_t first_position, int32_t row) {
  const int count = kRowsOfWarp * split.words;
  for (int first = 0; first < count; first += 32) {
    const int i = first + static_cast<int>(threadIdx.x) % 32;
    const int32_t from = __shfl_sync(~0u, row, min(i / split.words, 31));
    if (i >= count || from < 0) continue;
    split.ordered_masks[first_position * split.words + i] =
        split.masks[int64_t{from} * split.words + i % split.words];
  }
}

// A block moves kOrderRows rows of kOrderOffsets offsets through shared memory: whole rows in,
// whole columns out.
__global__ void __launch_bounds__(kBlock) OrderTable(const __grid_constant__ SplitTable split) {
  __shared__ int32_t entries[kOrderOffsets][kOrderRows + 1];
  const int64_t block_position = int64_t{blockIdx.x} * kOrderRows;
  const int first = split.first + static_cast<int>(blockIdx.y) * kOrderOffsets;
  const int first_of_warp = static_cast<int>(threadIdx.x) / 32 * kRowsOfWarp;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t first_position = block_position + first_of_warp;
  const bool has_row = lane < kRowsOfWarp && first_position + lane < split.rows;
  const int32_t row = has_row ? split.order[first_position + lane] : -1;
  int32_t loaded[kRowsOfWarp];
#pragma unroll
  for (int j = 0; j < kRowsOfWarp; ++j) {
    const int32_t from = __shfl_sync(~0u, row, j);
    const bool valid = from >= 0 && first + lane < split.last;
    loaded[j] = valid ? split.table[int64_t{from} * split.num_offsets + first + lane] : -1;
  }
  if (blockIdx.y == 0) OrderMasks(split, first_position, row);
#pragma unroll
  for (int j = 0; j < kRowsOfWarp; ++j) entries[lane][first_of_warp + j] = loaded[j];
  __syncthreads();
  const int64_t position = block_position + threadIdx.x % kOrderRows;
  if (position >= split.rows) return;
  for (int k = threadIdx.x / kOrderRows; k < kOrderOffsets; k += kBlock / kOrderRows) {
    if (first + k >= split.last) break;
    split.ordered_table[(first + k) * split.rows + position] = entries[k][threadIdx.x % kOrderRows];
  }
}

absl::Status MakeOrderedTable(const KernelMap& map, MaskSortedArrays& result,
                              const ExecutionContext& context) {
  const int64_t rows = map.num_outputs();
  const SharedArray<int32_t>& table = map.table().table;
  VOXCONV_ASSIGN_OR_RETURN(result.ordered_table, AllocateArray<int32_t>(table.size(), context));
  VOXCONV_ASSIGN_OR_RETURN(result.ordered_masks,
                           AllocateArray<uint32_t>(result.masks.size(), context));
  for (size_t s = 0; s + 1 < result.split_ptr.size(); ++s) {
    const int64_t at = static_cast<int64_t>(s) * rows;
    const SplitTable split{.table = table.data(),
                           .masks = result.masks.data() + at * result.words,
                           .order = result.row_order.data() + at,
                           .ordered_table = result.ordered_table.data(),
                           .ordered_masks = result.ordered_masks.data() + at * result.words,
                           .rows = rows,
                           .num_offsets = map.num_offsets(),
                           .words = result.words,
                           .first = result.split_ptr[s],
                           .last = result.split_ptr[s + 1]};
    const dim3 grid(static_cast<unsigned>(CeilDiv(rows, kOrderRows)),
                    static_cast<unsigned>(CeilDiv(split.last - split.first, kOrderOffsets)));
    VOXCONV_LAUNCH(OrderTable, grid, kBlock, 0, context, split);
  }
  return absl::OkStatus();
}

// Of whole offset ranges those that the table carries, or made from it.
absl::StatusOr<SharedArray<uint32_t>> MasksOf(const KernelMap& map, const MaskSortedArrays& result,
                                              const ExecutionContext& context) {
  const int num_offsets = map.num_offsets();
  if (result.splits() == 1 && num_offsets > 0) return RowMasks(map, context);
  const int64_t rows = map.num_outputs();
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> masks,
                           AllocateArray<uint32_t>(result.splits() * rows * result.words, context));
  for (int s = 0; s < result.splits(); ++s) {
    VOXCONV_RETURN_IF_ERROR(FillMasks(map.table().table.data(), rows, num_offsets,
                                      {result.split_ptr[s], result.split_ptr[s + 1]}, result.words,
                                      masks.data() + s * rows * result.words, context));
  }
  return SharedArray<uint32_t>(std::move(masks));
}

}  // namespace

absl::StatusOr<MaskSortedArrays> SortMasksCuda(const KernelMap& table, const MaskSortedRule& rule,
                                               const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(MaskSortedArrays result,
                           MaskSortedArrays::Cut(table.num_offsets(), rule.splits));
  VOXCONV_ASSIGN_OR_RETURN(result.masks, MasksOf(table, result, context));
  if (rule.order == MaskOrder::kNone && rule.splits == 1) return result;
  const int64_t rows = table.num_outputs();
  VOXCONV_ASSIGN_OR_RETURN(result.row_order, AllocateArray<int32_t>(rule.splits * rows, context));
  for (int s = 0; s < rule.splits; ++s) {
    VOXCONV_RETURN_IF_ERROR(
        OrderSplit(result, s, rule.order, rows, result.row_order.data() + s * rows, context));
  }
  if (rule.order != MaskOrder::kNone) {
    VOXCONV_RETURN_IF_ERROR(MakeOrderedTable(table, result, context));
  }
  return result;
}

}  // namespace voxconv
