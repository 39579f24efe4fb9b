// SPDX-License-Identifier: Apache-2.0
// From canonical pairs to tables, and maps with inputs and outputs exchanged.
#include <utility>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_primitives.h"
#include "voxconv/backends/cuda/last_not_above.cuh"
#include "voxconv/backends/cuda/map_conversions.h"
#include "voxconv/backends/cuda/map_table.h"
#include "voxconv/core/map_ops.h"

namespace voxconv {
namespace {

constexpr int kBlock = 256;

// table[row[i] * K + offset of pair i] = value[i], or i without values.
__global__ void WriteTable(PairsView pairs, const int32_t* row, const int32_t* value,
                           int32_t* table) {
  const int64_t i = GlobalThread();
  if (i >= pairs.size) return;
  const int k = LastNotAbove(pairs.offset_ptr, pairs.num_offsets, i);
  table[int64_t{row[i]} * pairs.num_offsets + k] =
      value == nullptr ? static_cast<int32_t>(i) : value[i];
}

// table[p * K + k] = q for table[q * K + k] = p. An entry is written once at most: an input row
// meets one output row an offset. Masks start at 0.
__global__ void TransposeEntries(const int32_t* from, int64_t size, int num_offsets, int words,
                                 int32_t* to, uint32_t* masks) {
  const int64_t i = GlobalThread();
  if (i >= size) return;
  const int64_t p = from[i];
  if (p < 0) return;
  const int64_t q = i / num_offsets;
  const int k = static_cast<int>(i - q * num_offsets);
  to[p * num_offsets + k] = static_cast<int32_t>(q);
  atomicOr(&masks[p * words + k / 32], 1u << k % 32);
}

// (offset, input row) in one word.
template <typename Key>
__global__ void PackInputKeys(PairsView pairs, int row_bits, Key* keys) {
  const int64_t i = GlobalThread();
  if (i >= pairs.size) return;
  const Key k = LastNotAbove(pairs.offset_ptr, pairs.num_offsets, i);
  keys[i] = k << row_bits | static_cast<Key>(pairs.in[i]);
}

template <typename Key>
__global__ void UnpackRows(const Key* keys, int64_t size, int row_bits, int32_t* rows) {
  const int64_t i = GlobalThread();
  if (i >= size) return;
  rows[i] = static_cast<int32_t>(keys[i] & ((Key{1} << row_bits) - 1));
}

// A thread a pair.
dim3 PairGrid(const PairsView& pairs) { return GridFor(pairs.size, kBlock); }

template <typename Key>
absl::Status SortByInput(const DevicePairs& pairs, int row_bits, int key_bits, PairBuffers& sorted,
                         const ExecutionContext& context) {
  const int64_t size = pairs.view().size;
  VOXCONV_ASSIGN_OR_RETURN(Array<Key> keys, AllocateArray<Key>(size, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<Key> sorted_keys, AllocateArray<Key>(size, context));
  VOXCONV_LAUNCH(PackInputKeys<Key>, PairGrid(pairs.view()), kBlock, 0, context, pairs.view(),
                 row_bits, keys.data());
  VOXCONV_RETURN_IF_ERROR(SortByKey(keys.data(), sorted_keys.data(), pairs.view().out,
                                    sorted.in.data(), size, key_bits, context));
  VOXCONV_LAUNCH(UnpackRows<Key>, PairGrid(pairs.view()), kBlock, 0, context, sorted_keys.data(),
                 size, row_bits, sorted.out.data());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Array<int32_t>> EmptyTableCuda(int64_t rows, int num_offsets,
                                              const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table, AllocateTable(rows, num_offsets, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(table.data(), 0xff, table.bytes(), *context.stream));
  return table;
}

absl::StatusOr<DevicePairs> DevicePairs::Create(const KernelMap& map,
                                                const ExecutionContext& context) {
  const PairList& pairs = map.pairs();
  DevicePairs result;
  VOXCONV_ASSIGN_OR_RETURN(result.offset_ptr_, CopyToBackend<int64_t>(map.offset_ptr(), context));
  result.view_ = {pairs.in.data(), pairs.out.data(), result.offset_ptr_.data(), map.num_pairs(),
                  map.num_offsets()};
  return result;
}

absl::StatusOr<Array<int32_t>> TableOfPairs(const DevicePairs& pairs, const int32_t* row,
                                            const int32_t* value, int64_t rows,
                                            const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table,
                           EmptyTableCuda(rows, pairs.view().num_offsets, context));
  VOXCONV_LAUNCH(WriteTable, PairGrid(pairs.view()), kBlock, 0, context, pairs.view(), row, value,
                 table.data());
  return table;
}

absl::StatusOr<Array<int32_t>> OutputTable(const KernelMap& map, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const DevicePairs pairs, DevicePairs::Create(map, context));
  return TableOfPairs(pairs, pairs.view().out, pairs.view().in, map.num_outputs(), context);
}

absl::StatusOr<Array<int32_t>> InputTable(const KernelMap& map, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const DevicePairs pairs, DevicePairs::Create(map, context));
  return TableOfPairs(pairs, pairs.view().in, pairs.view().out, map.num_inputs(), context);
}

absl::StatusOr<NeighbourTable> TransposeTable(const KernelMap& map,
                                              const ExecutionContext& context) {
  const int num_offsets = map.num_offsets(), words = (num_offsets + 31) / 32;
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table,
                           EmptyTableCuda(map.num_inputs(), num_offsets, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> masks,
                           AllocateArray<uint32_t>(map.num_inputs() * words, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(masks.data(), 0, masks.bytes(), *context.stream));
  const SharedArray<int32_t>& from = map.table().table;
  VOXCONV_LAUNCH(TransposeEntries, GridFor(from.size(), kBlock), kBlock, 0, context, from.data(),
                 from.size(), num_offsets, words, table.data(), masks.data());
  return NeighbourTable{.table = std::move(table), .masks = std::move(masks)};
}

absl::StatusOr<PairList> TransposePairs(const KernelMap& map, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(PairBuffers sorted, PairBuffers::Allocate(map.num_pairs(), context));
  if (map.num_pairs() == 0) return PairList(std::move(sorted));
  VOXCONV_ASSIGN_OR_RETURN(const DevicePairs pairs, DevicePairs::Create(map, context));
  const int row_bits = BitsFor(map.num_inputs());
  const int key_bits = row_bits + BitsFor(map.num_offsets());
  VOXCONV_RETURN_IF_ERROR(key_bits <= 32
                              ? SortByInput<uint32_t>(pairs, row_bits, key_bits, sorted, context)
                              : SortByInput<uint64_t>(pairs, row_bits, key_bits, sorted, context));
  return PairList(std::move(sorted));
}

}  // namespace voxconv
