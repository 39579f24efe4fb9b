// From canonical pairs to the other layouts and back from those that store pair positions.
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/cuda/convert_kernel_map.h"
#include "backends/cuda/cuda_launch.h"
#include "backends/cuda/device_primitives.h"

namespace voxconv {
namespace {

constexpr int kBlock = 256;

__device__ int64_t GlobalThread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

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

// table[row[i] * K + offset of pair i] = value[i].
__global__ void WriteTable(PairsView pairs, const int32_t* row, const int32_t* value,
                           int32_t* table) {
  const int64_t i = GlobalThread();
  if (i >= pairs.size) return;
  const int k = OffsetOf(pairs.offset_ptr, pairs.num_offsets, i);
  table[int64_t{row[i]} * pairs.num_offsets + k] = value[i];
}

__global__ void WriteDenseTables(PairsView pairs, int32_t* in_table, int32_t* out_table) {
  const int64_t i = GlobalThread();
  if (i >= pairs.size) return;
  const int k = OffsetOf(pairs.offset_ptr, pairs.num_offsets, i);
  in_table[int64_t{pairs.in[i]} * pairs.num_offsets + k] = static_cast<int32_t>(i);
  out_table[int64_t{pairs.out[i]} * pairs.num_offsets + k] = static_cast<int32_t>(i);
}

__global__ void ReadDenseTable(const int32_t* table, int64_t size, int num_offsets, int32_t* rows) {
  const int64_t i = GlobalThread();
  if (i >= size) return;
  const int32_t position = table[i];
  if (position >= 0) rows[position] = static_cast<int32_t>(i / num_offsets);
}

__global__ void MakeCodes(PairsView pairs, uint32_t* codes) {
  const int64_t i = GlobalThread();
  if (i >= pairs.size) return;
  const uint32_t k = OffsetOf(pairs.offset_ptr, pairs.num_offsets, i);
  codes[i] = k + static_cast<uint32_t>(pairs.num_offsets) * static_cast<uint32_t>(i);
}

// row_ptr[r] = number of entries of the ascending `sorted` below r, for r = 0..rows.
__global__ void FindRowPointers(const uint32_t* sorted, int64_t size, int64_t rows,
                                int64_t* row_ptr) {
  const int64_t row = GlobalThread();
  if (row > rows) return;
  int64_t lo = 0, hi = size;
  while (lo < hi) {
    const int64_t mid = (lo + hi) / 2;
    if (sorted[mid] < row) {
      lo = mid + 1;
    } else {
      hi = mid;
    }
  }
  row_ptr[row] = lo;
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

// [rows, num_offsets] of -1.
absl::StatusOr<Array<int32_t>> EmptyTable(int64_t rows, int num_offsets,
                                          const ExecutionContext& context) {
  if (num_offsets > 0 && rows > INT64_MAX / 8 / num_offsets) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel map: a table of ", rows, " x ", num_offsets, " entries is too large"));
  }
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table,
                           AllocateArray<int32_t>(rows * num_offsets, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(table.data(), 0xff, table.bytes(), *context.stream));
  return table;
}

absl::StatusOr<PairList> AllocatePairs(int64_t size, const ExecutionContext& context) {
  PairList pairs;
  VOXCONV_ASSIGN_OR_RETURN(pairs.in, AllocateArray<int32_t>(size, context));
  VOXCONV_ASSIGN_OR_RETURN(pairs.out, AllocateArray<int32_t>(size, context));
  return pairs;
}

// One side of the coded CSR. The codes come in order of their offsets, and a stable sort by row
// leaves them so within a row.
absl::Status EncodeRows(const Array<int32_t>& row_of, const Array<uint32_t>& codes, int64_t rows,
                        Array<int64_t>& ptr, Array<uint32_t>& sorted_codes,
                        const ExecutionContext& context) {
  const int64_t size = codes.size();
  VOXCONV_ASSIGN_OR_RETURN(ptr, AllocateArray<int64_t>(rows + 1, context));
  VOXCONV_ASSIGN_OR_RETURN(sorted_codes, AllocateArray<uint32_t>(size, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> sorted_rows, AllocateArray<uint32_t>(size, context));
  // The sort moves bits and looks at the keys alone; int32 and uint32 may alias.
  VOXCONV_RETURN_IF_ERROR(
      SortByKey(reinterpret_cast<const uint32_t*>(row_of.data()), sorted_rows.data(),
                reinterpret_cast<const int32_t*>(codes.data()),
                reinterpret_cast<int32_t*>(sorted_codes.data()), size, BitsFor(rows), context));
  VOXCONV_LAUNCH(FindRowPointers, GridFor(rows + 1, kBlock), kBlock, 0, context, sorted_rows.data(),
                 size, rows, ptr.data());
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
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table,
                           EmptyTable(map.num_outputs(), map.num_offsets(), context));
  VOXCONV_LAUNCH(WriteTable, pairs.grid(), kBlock, 0, context, pairs.view(), pairs.view().out,
                 pairs.view().in, table.data());
  return NeighbourTable{.table = std::move(table), .masks = {}};
}

absl::StatusOr<Array<int32_t>> PairsToInputTable(const KernelMap& map,
                                                 const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(DevicePairs pairs, DevicePairs::Create(map, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table,
                           EmptyTable(map.num_inputs(), map.num_offsets(), context));
  VOXCONV_LAUNCH(WriteTable, pairs.grid(), kBlock, 0, context, pairs.view(), pairs.view().in,
                 pairs.view().out, table.data());
  return table;
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
                           EmptyTable(map.num_inputs(), map.num_offsets(), context));
  VOXCONV_ASSIGN_OR_RETURN(result.out_table,
                           EmptyTable(map.num_outputs(), map.num_offsets(), context));
  VOXCONV_LAUNCH(WriteDenseTables, pairs.grid(), kBlock, 0, context, pairs.view(),
                 result.in_table.data(), result.out_table.data());
  return result;
}

absl::StatusOr<CodedCsr> PairsToCodedCsr(const KernelMap& map, const ExecutionContext& context) {
  if (map.num_pairs() > 0 && map.num_pairs() > int64_t{UINT32_MAX} / map.num_offsets()) {
    return absl::InvalidArgumentError(absl::StrCat("kernel map: ", map.num_offsets(), " offsets x ",
                                                   map.num_pairs(),
                                                   " pairs; coded CSR holds codes below 2^32"));
  }
  VOXCONV_ASSIGN_OR_RETURN(DevicePairs pairs, DevicePairs::Create(map, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> codes,
                           AllocateArray<uint32_t>(map.num_pairs(), context));
  VOXCONV_LAUNCH(MakeCodes, pairs.grid(), kBlock, 0, context, pairs.view(), codes.data());
  CodedCsr result;
  const PairList& list = map.As<PairList>();
  VOXCONV_RETURN_IF_ERROR(
      EncodeRows(list.in, codes, map.num_inputs(), result.in_ptr, result.in_code, context));
  VOXCONV_RETURN_IF_ERROR(
      EncodeRows(list.out, codes, map.num_outputs(), result.out_ptr, result.out_code, context));
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
