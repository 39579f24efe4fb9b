// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cub/block/block_load.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <utility>

#include "voxconv/backends/cuda/coordinate_rows.cuh"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_primitives.h"
#include "voxconv/mapping/sorted_search/sorted_keys_cuda.h"

namespace voxconv {
namespace {

constexpr int kThreads = 256;
// Up to this size the passes of a radix sort find too little work to fill the device: one counting
// sort by the upper bits does, and each voxel then finds its place among those of its bin.
constexpr int64_t kMaxBinnedSize = 1 << 18;
constexpr int kMaxBinBits = 14;
constexpr int kScanThreads = 1024;
constexpr int kChunk = 8;      // keys of a bin that are read at a time
constexpr int kDigitBits = 8;  // of one pass of the radix sort
// Low bits that the radix sort may leave to SettleKernel, which compares each voxel with all that
// are equal in the others: at most 2^9, a few as long as scenes are sparse.
constexpr int kMaxSettledBits = 9;

// Numbers the cells of the bounding box, over all batches, in the order of their keys.
struct Cells {
  Int3 lo;
  uint64_t extent_y, extent_z;
  uint64_t batch;  // cells of a batch
  int low_bits;    // those that do not belong to the group or bin

  __device__ uint64_t operator()(const Coordinate& c) const {
    const uint64_t x = static_cast<uint32_t>(c.x - lo.x), y = static_cast<uint32_t>(c.y - lo.y),
                   z = static_cast<uint32_t>(c.z - lo.z);
    return c.b * batch + (x * extent_y + y) * extent_z + z;
  }
  __device__ uint64_t Upper(const Coordinate& c) const { return (*this)(c) >> low_bits; }
};

// Thread `size` writes the end.
__global__ void __launch_bounds__(kThreads)
    PackKernel(const Coordinate* rows, int64_t size, uint64_t* keys) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i > size) return;
  keys[i] = i == size ? kEndKey : SearchKey(LoadRow(InterleavedRows{rows}, i));
}

// Counts the voxels of every bin; rank[i]: how many of voxel i's came before it, in any order.
__global__ void __launch_bounds__(kThreads)
    CountKernel(const Coordinate* rows, int64_t size, Cells bins, int32_t* counts, int32_t* rank) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < size) rank[i] = atomicAdd(counts + bins.Upper(LoadRow(InterleavedRows{rows}, i)), 1);
}

// counts[0 .. 2^kMaxBinBits) becomes its exclusive sum. One block.
__global__ void __launch_bounds__(kScanThreads) ScanKernel(int32_t* counts) {
  constexpr int kItems = (1 << kMaxBinBits) / kScanThreads;
  using Load = cub::BlockLoad<int32_t, kScanThreads, kItems, cub::BLOCK_LOAD_VECTORIZE>;
  using Store = cub::BlockStore<int32_t, kScanThreads, kItems, cub::BLOCK_STORE_VECTORIZE>;
  using Scan = cub::BlockScan<int32_t, kScanThreads>;
  __shared__ typename Scan::TempStorage scan;
  int32_t items[kItems];
  Load().Load(counts, items);
  Scan(scan).ExclusiveSum(items, items);
  Store().Store(counts, items);
}

// `keys` has room for a multiple of kChunk, the last of which become kEndKey.
__global__ void __launch_bounds__(kThreads)
    ScatterKernel(const Coordinate* rows, int64_t size, Cells bins, const int32_t* first,
                  const int32_t* rank, uint64_t* keys, int32_t* row) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= size) {
    if (i < CeilDiv(size, kChunk) * kChunk) keys[i] = kEndKey;
    return;
  }
  const Coordinate c = LoadRow(InterleavedRows{rows}, i);
  const int32_t position = __ldg(first + bins.Upper(c)) + rank[i];
  keys[position] = SearchKey(c);
  row[position] = static_cast<int32_t>(i);
}

// Keys and rows lie bin by bin. Thread `size` writes the end.
__global__ void __launch_bounds__(kThreads)
    RankKernel(const uint64_t* binned_keys, const int32_t* binned_rows, int64_t size, Cells bins,
               const int32_t* first, uint64_t* keys, int32_t* rows) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i == size) keys[size] = kEndKey;
  if (i >= size) return;
  const uint64_t key = binned_keys[i];
  const uint64_t bin = bins.Upper(VoxelOf(key));
  const int32_t end = bin + 1 < 1 << kMaxBinBits ? first[bin + 1] : static_cast<int32_t>(size);
  // From the start of a chunk to the end of one: keys of the bins before are all below this one,
  // those of the bins behind above.
  const int32_t begin = first[bin] / kChunk * kChunk;
  int32_t position = begin;
  for (int32_t chunk = begin; chunk < end; chunk += kChunk) {
    const auto* pairs = reinterpret_cast<const ulonglong2*>(binned_keys + chunk);
#pragma unroll
    for (int j = 0; j < kChunk / 2; ++j) {
      const ulonglong2 two = __ldg(pairs + j);
      position += (two.x < key) + (two.y < key);
    }
  }
  keys[position] = key;
  rows[position] = binned_rows[i];
}

absl::Status BinRows(const CoordinateSet& voxels, const Cells& bins, SortedKeysCuda& sorted,
                     const ExecutionContext& context) {
  const int64_t size = voxels.size();
  const Coordinate* rows = voxels.rows().data();
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> counts,
                           AllocateArray<int32_t>(1 << kMaxBinBits, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> rank, AllocateArray<int32_t>(size, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> keys,
                           AllocateArray<uint64_t>(CeilDiv(size, kChunk) * kChunk, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> row, AllocateArray<int32_t>(size, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(counts.data(), 0, counts.bytes(), *context.stream));
  VOXCONV_LAUNCH(CountKernel, GridFor(size, kThreads), kThreads, 0, context, rows, size, bins,
                 counts.data(), rank.data());
  VOXCONV_LAUNCH(ScanKernel, 1, kScanThreads, 0, context, counts.data());
  VOXCONV_LAUNCH(ScatterKernel, GridFor(keys.size(), kThreads), kThreads, 0, context, rows, size,
                 bins, counts.data(), rank.data(), keys.data(), row.data());
  VOXCONV_LAUNCH(RankKernel, GridFor(size + 1, kThreads), kThreads, 0, context, keys.data(),
                 row.data(), size, bins, counts.data(), sorted.keys.data(), sorted.rows.data());
  return absl::OkStatus();
}

// The radix sort's keys and values: a cell's upper bits, the group; its other bits above its row.
template <typename Group>
__global__ void __launch_bounds__(kThreads)
    GroupKernel(const Coordinate* rows, int64_t size, Cells cells, int row_bits, Group* groups,
                uint32_t* values) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= size) return;
  const uint64_t cell = cells(LoadRow(InterleavedRows{rows}, i));
  groups[i] = static_cast<Group>(cell >> cells.low_bits);
  const uint32_t low = static_cast<uint32_t>(cell) & ((1u << cells.low_bits) - 1);
  values[i] = low << row_bits | static_cast<uint32_t>(i);
}

// Of the values sorted by group, each goes to its place in its group. Thread `size` writes the end.
template <typename Group>
__global__ void __launch_bounds__(kThreads)
    SettleKernel(const Coordinate* rows, int64_t size, const Group* groups, const uint32_t* values,
                 int row_bits, uint64_t* keys, int32_t* sorted_row) {
  __shared__ Group block_groups[kThreads];
  __shared__ uint32_t block_values[kThreads];
  const int64_t first = int64_t{blockIdx.x} * kThreads;
  const int64_t i = first + threadIdx.x;
  const Group group = i < size ? groups[i] : 0;
  const uint32_t value = i < size ? values[i] : 0;
  block_groups[threadIdx.x] = group;
  block_values[threadIdx.x] = value;
  __syncthreads();
  if (i == size) keys[size] = kEndKey;
  if (i >= size) return;
  const int32_t row = static_cast<int32_t>(value & ((1u << row_bits) - 1));
  const uint64_t key = SearchKey(LoadRow(InterleavedRows{rows}, row));
  const auto is_inside = [&](int64_t j) { return j >= first && j < first + kThreads; };
  const auto group_at = [&](int64_t j) {
    return is_inside(j) ? block_groups[j - first] : groups[j];
  };
  const auto value_at = [&](int64_t j) {
    return is_inside(j) ? block_values[j - first] : values[j];
  };
  // Values of a group differ in the cell's bits: the rows below them decide nothing.
  int64_t position = i;
  for (int64_t j = i - 1; j >= 0 && group_at(j) == group; --j) position -= value_at(j) > value;
  for (int64_t j = i + 1; j < size && group_at(j) == group; ++j) position += value_at(j) < value;
  keys[position] = key;
  sorted_row[position] = row;
}

template <typename Group>
absl::Status RadixSortRows(const CoordinateSet& voxels, const Cells& cells, int row_bits,
                           int group_bits, SortedKeysCuda& sorted,
                           const ExecutionContext& context) {
  const int64_t size = voxels.size();
  VOXCONV_ASSIGN_OR_RETURN(Array<Group> groups, AllocateArray<Group>(2 * size, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> values, AllocateArray<uint32_t>(2 * size, context));
  VOXCONV_LAUNCH(GroupKernel<Group>, GridFor(size, kThreads), kThreads, 0, context,
                 voxels.rows().data(), size, cells, row_bits, groups.data(), values.data());
  int32_t* payload = reinterpret_cast<int32_t*>(values.data());
  VOXCONV_RETURN_IF_ERROR(SortByKey(groups.data(), groups.data() + size, payload, payload + size,
                                    size, group_bits, context));
  VOXCONV_LAUNCH(SettleKernel<Group>, GridFor(size + 1, kThreads), kThreads, 0, context,
                 voxels.rows().data(), size, groups.data() + size, values.data() + size, row_bits,
                 sorted.keys.data(), sorted.rows.data());
  return absl::OkStatus();
}

absl::Status SortRows(const CoordinateSet& voxels, SortedKeysCuda& sorted,
                      const ExecutionContext& context) {
  const int64_t size = voxels.size();
  const Box& box = voxels.bounds();
  const auto extent = [&](int axis) {
    return static_cast<uint64_t>(int64_t{box.hi[axis]} - box.lo[axis] + 1);
  };
  Cells cells{.lo = box.lo, .extent_y = extent(1), .extent_z = extent(2)};
  cells.batch = extent(0) * extent(1) * extent(2);                          // at most 2^54
  const int bits = std::bit_width(voxels.num_batches() * cells.batch - 1);  // at most 63
  if (size <= kMaxBinnedSize) {
    cells.low_bits = std::max(0, bits - kMaxBinBits);
    return BinRows(voxels, cells, sorted, context);
  }
  // A value holds the settled bits and the row.
  const int row_bits = BitsFor(size);
  const int most_settled = std::min(kMaxSettledBits, 32 - row_bits);
  const int passes = std::max<int>(1, CeilDiv(bits - most_settled, kDigitBits));
  const int group_bits = std::min(bits, passes * kDigitBits);
  cells.low_bits = bits - group_bits;
  return group_bits <= 32
             ? RadixSortRows<uint32_t>(voxels, cells, row_bits, group_bits, sorted, context)
             : RadixSortRows<uint64_t>(voxels, cells, row_bits, group_bits, sorted, context);
}

}  // namespace

absl::StatusOr<SortedKeysCuda> BuildSortedKeysCuda(const CoordinateSet& voxels,
                                                   const ExecutionContext& context) {
  const int64_t size = voxels.size();
  SortedKeysCuda sorted;
  VOXCONV_ASSIGN_OR_RETURN(sorted.keys, AllocateArray<uint64_t>(size + 1, context));
  if (!voxels.sorted() && size > 1) {
    VOXCONV_ASSIGN_OR_RETURN(sorted.rows, AllocateArray<int32_t>(size, context));
    VOXCONV_RETURN_IF_ERROR(SortRows(voxels, sorted, context));
    return sorted;
  }
  VOXCONV_LAUNCH(PackKernel, GridFor(size + 1, kThreads), kThreads, 0, context,
                 voxels.rows().data(), size, sorted.keys.data());
  return sorted;
}

}  // namespace voxconv
