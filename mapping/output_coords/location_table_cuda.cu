// SPDX-License-Identifier: Apache-2.0
// Luo and Lai's down-sampling (Section III-D): a table says of every cell whether it has an output,
// and its place in the list of outputs, and an atomic counter gives the places. The table is an
// array over all cells or, where that would be too large, a hash table (Section III-C1).
//
// The paper's outputs are in the order of the counter, which differs from run to run. A sort gives
// them the order of all output coordinates.
#include <algorithm>
#include <utility>

#include "absl/numeric/bits.h"
#include "voxconv/core/key_mix.h"
#include "voxconv/mapping/output_coords/each_output_cuda.cuh"
#include "voxconv/mapping/output_coords/unique_rows_cuda.cuh"

namespace voxconv {
namespace {

using unique_rows::SortedKeys;

constexpr int kThreads = 256;
constexpr int32_t kNone = -1, kTaken = -2;
constexpr unsigned long long kNoKey = ~0ull;

// The place of each cell's output. Take returns where Put writes it if the cell has had none, and
// null if it has one.
struct CellTable {
  int32_t* places;  // [cells]

  __device__ int32_t* Take(uint64_t number) const {
    int32_t* const place = places + number;
    return atomicCAS(place, kNone, kTaken) == kNone ? place : nullptr;
  }
  // Others may try to take the cell meanwhile.
  __device__ static void Put(int32_t* place, int32_t value) { atomicExch(place, value); }
};
struct HashTable {
  int32_t* places;           // [slots], not initialised
  unsigned long long* keys;  // [slots]; kNoKey: empty
  uint64_t mask;             // slots - 1

  __device__ int32_t* Take(uint64_t number) const {
    for (uint64_t slot = MixKey(number) & mask;; slot = (slot + 1) & mask) {
      const unsigned long long found = atomicCAS(keys + slot, kNoKey, number);
      if (found == kNoKey) return places + slot;
      if (found == number) return nullptr;
    }
  }
  // Others look at the keys alone.
  __device__ static void Put(int32_t* place, int32_t value) { *place = value; }
};

template <typename Table, typename Key>
__global__ void __launch_bounds__(kThreads)
    TakeKernel(ExpansionLevelCuda level, Table table, Key* list, unsigned long long* size) {
  const int64_t row = GlobalThread();
  if (row >= level.inputs.Size()) return;
  EachOutput(level, row, [&](const Coordinate& q) {
    const uint64_t number = level.cells.NumberOf(q);
    int32_t* const place = table.Take(number);
    if (place == nullptr) return;
    const unsigned long long added = atomicAdd(size, 1ull);
    list[added] = static_cast<Key>(number);
    Table::Put(place, static_cast<int32_t>(added));
  });
}

template <typename Table, typename Key>
absl::Status TakeAndSort(const ExpansionLevelCuda& level, const Table& table, int64_t max_outputs,
                         const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<Key> list, AllocateArray<Key>(max_outputs, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<unsigned long long> size,
                           AllocateArray<unsigned long long>(1, context));
  static_assert(SortedKeys<Key>::kNone == static_cast<Key>(~Key{0}));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(list.data(), 0xff, list.bytes(), *context.stream));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(size.data(), 0, size.bytes(), *context.stream));
  const auto kernel = TakeKernel<Table, Key>;
  VOXCONV_LAUNCH(kernel, GridFor(level.inputs.bound, kThreads), kThreads, 0, context, level, table,
                 list.data(), size.data());
  return SortUniqueRows(std::move(list), level, context);
}

template <typename Table>
absl::Status TakeAll(const ExpansionLevelCuda& level, const Table& table, int64_t max_outputs,
                     const ExecutionContext& context) {
  return level.cells.count < kMaxNarrowCells
             ? TakeAndSort<Table, uint32_t>(level, table, max_outputs, context)
             : TakeAndSort<Table, uint64_t>(level, table, max_outputs, context);
}

}  // namespace

absl::Status LocationTableLevelCuda(const ExpansionLevelCuda& level, int64_t max_bytes,
                                    const ExecutionContext& context) {
  const auto max_outputs =
      static_cast<int64_t>(std::min(static_cast<uint64_t>(level.max_keys()), level.cells.count));
  const bool is_array = level.cells.count <= static_cast<uint64_t>(max_bytes) / sizeof(int32_t);
  const int64_t size =
      is_array ? static_cast<int64_t>(level.cells.count)
               : static_cast<int64_t>(absl::bit_ceil(2 * static_cast<uint64_t>(max_outputs)));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> places, AllocateArray<int32_t>(size, context));
  static_assert(kNone == -1);
  if (is_array) {
    VOXCONV_RETURN_IF_ERROR(
        context.backend->FillBytes(places.data(), 0xff, places.bytes(), *context.stream));
    return TakeAll(level, CellTable{places.data()}, max_outputs, context);
  }
  VOXCONV_ASSIGN_OR_RETURN(Array<unsigned long long> keys,
                           AllocateArray<unsigned long long>(size, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(keys.data(), 0xff, keys.bytes(), *context.stream));
  const HashTable table{places.data(), keys.data(), static_cast<uint64_t>(size) - 1};
  return TakeAll(level, table, max_outputs, context);
}

}  // namespace voxconv
