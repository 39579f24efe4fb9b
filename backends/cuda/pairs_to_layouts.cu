// From canonical pairs to the other layouts and back from those that store pair positions.
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/cuda/convert_kernel_map.h"
#include "backends/cuda/cuda_launch.h"
#include "backends/cuda/device_primitives.h"

namespace voxconv {
namespace {

constexpr int kBlock = 256;

// The offset that pair i belongs to: the last k with offset_ptr[k] <= i.
__device__ int OffsetOf(const int64_t* offset_ptr, int num_offsets, int64_t i) {
  int lo = 0, hi = num_offsets;
  while (hi - lo > 1) {
    const int mid = (lo + hi) / 2;
    if (offset_ptr[mid] <= i) {
      lo = mid;
    } else {
      hi = mid;
    }
  }
  return lo;
}

// What kernels that go over the pairs are handed.
struct PairsView {
  const int32_t* in;
  const int32_t* out;
  const int64_t* offset_ptr;
  int64_t size;
  int num_offsets;
};

// table[row[i] * K + offset of pair i] = value[i], or i without values.
__global__ void WriteTable(PairsView pairs, const int32_t* row, const int32_t* value,
                           int32_t* table) {
  const int64_t i = GlobalThread();
  if (i >= pairs.size) return;
  const int k = OffsetOf(pairs.offset_ptr, pairs.num_offsets, i);
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

__global__ void ReadDenseTable(const int32_t* table, int64_t size, int num_offsets, int32_t* rows) {
  const int64_t i = GlobalThread();
  if (i >= size) return;
  const int32_t position = table[i];
  if (position >= 0) rows[position] = static_cast<int32_t>(i / num_offsets);
}

// counts[row]: bits of the row's mask; counts[rows] = 0.
__global__ void CountRowBits(const uint32_t* masks, int64_t rows, int words, int32_t* counts) {
  const int64_t row = GlobalThread();
  if (row > rows) return;
  int32_t count = 0;
  for (int w = 0; w < words && row < rows; ++w) count += __popc(masks[row * words + w]);
  counts[row] = count;
}

__global__ void WriteCodes(const int32_t* positions, const uint32_t* masks, int64_t rows, int words,
                           uint32_t num_offsets, const int64_t* ptr, uint32_t* codes) {
  const int64_t row = GlobalThread();
  if (row >= rows) return;
  uint32_t* to = codes + ptr[row];
  for (int w = 0; w < words; ++w) {
    for (uint32_t mask = masks[row * words + w]; mask != 0; mask &= mask - 1) {
      const uint32_t k = 32 * w + __ffs(mask) - 1;
      *to++ = k + num_offsets * static_cast<uint32_t>(positions[row * num_offsets + k]);
    }
  }
}

__global__ void ReadCodes(const int64_t* row_ptr, const uint32_t* codes, int64_t rows,
                          uint32_t num_offsets, int32_t* row_of_pair) {
  const int64_t row = GlobalThread();
  if (row >= rows) return;
  for (int64_t i = row_ptr[row]; i < row_ptr[row + 1]; ++i) {
    row_of_pair[codes[i] / num_offsets] = static_cast<int32_t>(row);
  }
}

// (offset, input row) in one word.
template <typename Key>
__global__ void PackInputKeys(PairsView pairs, int row_bits, Key* keys) {
  const int64_t i = GlobalThread();
  if (i >= pairs.size) return;
  const Key k = OffsetOf(pairs.offset_ptr, pairs.num_offsets, i);
  keys[i] = k << row_bits | static_cast<Key>(pairs.in[i]);
}

template <typename Key>
__global__ void UnpackRows(const Key* keys, int64_t size, int row_bits, int32_t* rows) {
  const int64_t i = GlobalThread();
  if (i >= size) return;
  rows[i] = static_cast<int32_t>(keys[i] & ((Key{1} << row_bits) - 1));
}

// The pairs of a map in the form kernels take; holds the offset pointers' copy on the device.
class DevicePairs {
 public:
  static absl::StatusOr<DevicePairs> Create(const KernelMap& map, const ExecutionContext& context) {
    DevicePairs result;
    VOXCONV_ASSIGN_OR_RETURN(result.offset_ptr_, CopyToBackend<int64_t>(map.offset_ptr(), context));
    const PairList& pairs = map.As<PairList>();
    result.view_ = {pairs.in.data(), pairs.out.data(), result.offset_ptr_.data(), map.num_pairs(),
                    map.num_offsets()};
    return result;
  }
  const PairsView& view() const { return view_; }
  dim3 grid() const { return GridFor(view_.size, kBlock); }

 private:
  Array<int64_t> offset_ptr_;
  PairsView view_{};
};

// [rows, K], -1 = none: by each pair's `row` its `value`, or its position without values.
absl::StatusOr<Array<int32_t>> MakeTable(const DevicePairs& pairs, const int32_t* row,
                                         const int32_t* value, int64_t rows,
                                         const ExecutionContext& context) {
  const int num_offsets = pairs.view().num_offsets;
  if (num_offsets > 0 && rows > INT64_MAX / 8 / num_offsets) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel map: a table of ", rows, " x ", num_offsets, " entries is too large"));
  }
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table,
                           AllocateArray<int32_t>(rows * num_offsets, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(table.data(), 0xff, table.bytes(), *context.stream));
  VOXCONV_LAUNCH(WriteTable, pairs.grid(), kBlock, 0, context, pairs.view(), row, value,
                 table.data());
  return table;
}

absl::StatusOr<PairList> AllocatePairs(int64_t size, const ExecutionContext& context) {
  PairList pairs;
  VOXCONV_ASSIGN_OR_RETURN(pairs.in, AllocateArray<int32_t>(size, context));
  VOXCONV_ASSIGN_OR_RETURN(pairs.out, AllocateArray<int32_t>(size, context));
  return pairs;
}

// One side of the coded CSR, by way of the pairs' positions in a table (they fit int32: K * pairs
// is below 2^32, and one offset has fewer pairs than there are rows).
absl::Status EncodeRows(const DevicePairs& pairs, const int32_t* row, int64_t rows,
                        Array<int64_t>& ptr, Array<uint32_t>& codes,
                        const ExecutionContext& context) {
  const int num_offsets = pairs.view().num_offsets;
  VOXCONV_ASSIGN_OR_RETURN(ptr, AllocateArray<int64_t>(rows + 1, context));
  VOXCONV_ASSIGN_OR_RETURN(codes, AllocateArray<uint32_t>(pairs.view().size, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> positions, MakeTable(pairs, row, nullptr, rows, context));
  const int words = static_cast<int>(CeilDiv(num_offsets, 32));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> masks, SplitMasks(positions.data(), rows, num_offsets,
                                                             {0, num_offsets}, words, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> counts, AllocateArray<int32_t>(rows + 1, context));
  VOXCONV_LAUNCH(CountRowBits, GridFor(rows + 1, kBlock), kBlock, 0, context, masks.data(), rows,
                 words, counts.data());
  VOXCONV_RETURN_IF_ERROR(ExclusiveSum(counts.data(), ptr.data(), rows + 1, context));
  VOXCONV_LAUNCH(WriteCodes, GridFor(rows, kBlock), kBlock, 0, context, positions.data(),
                 masks.data(), rows, words, static_cast<uint32_t>(num_offsets), ptr.data(),
                 codes.data());
  return absl::OkStatus();
}

template <typename Key>
absl::Status SortByInput(const DevicePairs& pairs, int row_bits, int key_bits, PairList& sorted,
                         const ExecutionContext& context) {
  const int64_t size = pairs.view().size;
  VOXCONV_ASSIGN_OR_RETURN(Array<Key> keys, AllocateArray<Key>(size, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<Key> sorted_keys, AllocateArray<Key>(size, context));
  VOXCONV_LAUNCH(PackInputKeys<Key>, pairs.grid(), kBlock, 0, context, pairs.view(), row_bits,
                 keys.data());
  VOXCONV_RETURN_IF_ERROR(SortByKey(keys.data(), sorted_keys.data(), pairs.view().out,
                                    sorted.in.data(), size, key_bits, context));
  VOXCONV_LAUNCH(UnpackRows<Key>, pairs.grid(), kBlock, 0, context, sorted_keys.data(), size,
                 row_bits, sorted.out.data());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NeighbourTable> PairsToTable(const KernelMap& map, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(DevicePairs pairs, DevicePairs::Create(map, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table, MakeTable(pairs, pairs.view().out, pairs.view().in,
                                                           map.num_outputs(), context));
  return NeighbourTable{.table = std::move(table), .masks = {}};
}

absl::StatusOr<NeighbourTable> TransposeTable(const KernelMap& map,
                                              const ExecutionContext& context) {
  const int num_offsets = map.num_offsets(), words = (num_offsets + 31) / 32;
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table,
                           AllocateArray<int32_t>(map.num_inputs() * num_offsets, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> masks,
                           AllocateArray<uint32_t>(map.num_inputs() * words, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(table.data(), 0xff, table.bytes(), *context.stream));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(masks.data(), 0, masks.bytes(), *context.stream));
  const SharedArray<int32_t>& from = *NeighboursOf(map);
  VOXCONV_LAUNCH(TransposeEntries, GridFor(from.size(), kBlock), kBlock, 0, context, from.data(),
                 from.size(), num_offsets, words, table.data(), masks.data());
  return NeighbourTable{.table = std::move(table), .masks = std::move(masks)};
}

absl::StatusOr<Array<int32_t>> PairsToInputTable(const KernelMap& map,
                                                 const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(DevicePairs pairs, DevicePairs::Create(map, context));
  return MakeTable(pairs, pairs.view().in, pairs.view().out, map.num_inputs(), context);
}

absl::StatusOr<DenseTables> PairsToDenseTables(const KernelMap& map,
                                               const ExecutionContext& context) {
  if (map.num_pairs() > INT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernel map: ", map.num_pairs(), " pairs; dense tables hold at most ", INT32_MAX));
  }
  VOXCONV_ASSIGN_OR_RETURN(DevicePairs pairs, DevicePairs::Create(map, context));
  DenseTables result;
  VOXCONV_ASSIGN_OR_RETURN(result.in_table,
                           MakeTable(pairs, pairs.view().in, nullptr, map.num_inputs(), context));
  VOXCONV_ASSIGN_OR_RETURN(result.out_table,
                           MakeTable(pairs, pairs.view().out, nullptr, map.num_outputs(), context));
  return result;
}

absl::StatusOr<CodedCsr> PairsToCodedCsr(const KernelMap& map, const ExecutionContext& context) {
  if (map.num_pairs() > 0 && map.num_pairs() > int64_t{UINT32_MAX} / map.num_offsets()) {
    return absl::InvalidArgumentError(absl::StrCat("kernel map: ", map.num_offsets(), " offsets x ",
                                                   map.num_pairs(),
                                                   " pairs; coded CSR holds codes below 2^32"));
  }
  VOXCONV_ASSIGN_OR_RETURN(DevicePairs pairs, DevicePairs::Create(map, context));
  CodedCsr result;
  VOXCONV_RETURN_IF_ERROR(
      EncodeRows(pairs, pairs.view().in, map.num_inputs(), result.in_ptr, result.in_code, context));
  VOXCONV_RETURN_IF_ERROR(EncodeRows(pairs, pairs.view().out, map.num_outputs(), result.out_ptr,
                                     result.out_code, context));
  return result;
}

absl::StatusOr<PairList> DenseTablesToPairs(const KernelMap& map, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(PairList pairs, AllocatePairs(map.num_pairs(), context));
  const auto read = [&](const Array<int32_t>& table, int32_t* rows) {
    VOXCONV_LAUNCH(ReadDenseTable, GridFor(table.size(), kBlock), kBlock, 0, context, table.data(),
                   table.size(), map.num_offsets(), rows);
    return absl::OkStatus();
  };
  const DenseTables& tables = map.As<DenseTables>();
  VOXCONV_RETURN_IF_ERROR(read(tables.in_table, pairs.in.data()));
  VOXCONV_RETURN_IF_ERROR(read(tables.out_table, pairs.out.data()));
  return pairs;
}

absl::StatusOr<PairList> CodedCsrToPairs(const KernelMap& map, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(PairList pairs, AllocatePairs(map.num_pairs(), context));
  if (map.num_pairs() == 0) return pairs;
  const uint32_t num_offsets = map.num_offsets();
  const auto read = [&](const Array<int64_t>& ptr, const Array<uint32_t>& codes, int32_t* rows) {
    VOXCONV_LAUNCH(ReadCodes, GridFor(ptr.size() - 1, kBlock), kBlock, 0, context, ptr.data(),
                   codes.data(), ptr.size() - 1, num_offsets, rows);
    return absl::OkStatus();
  };
  const CodedCsr& csr = map.As<CodedCsr>();
  VOXCONV_RETURN_IF_ERROR(read(csr.in_ptr, csr.in_code, pairs.in.data()));
  VOXCONV_RETURN_IF_ERROR(read(csr.out_ptr, csr.out_code, pairs.out.data()));
  return pairs;
}

absl::StatusOr<PairList> TransposePairs(const KernelMap& map, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(PairList sorted, AllocatePairs(map.num_pairs(), context));
  if (map.num_pairs() == 0) return sorted;
  VOXCONV_ASSIGN_OR_RETURN(DevicePairs pairs, DevicePairs::Create(map, context));
  const int row_bits = BitsFor(map.num_inputs());
  const int key_bits = row_bits + BitsFor(map.num_offsets());
  VOXCONV_RETURN_IF_ERROR(key_bits <= 32
                              ? SortByInput<uint32_t>(pairs, row_bits, key_bits, sorted, context)
                              : SortByInput<uint64_t>(pairs, row_bits, key_bits, sorted, context));
  return sorted;
}

}  // namespace voxconv
