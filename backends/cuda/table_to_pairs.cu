// SPDX-License-Identifier: Apache-2.0
// Counting and listing the pairs of a table. Both go by row masks, a bit an entry: a warp takes a
// tile of 32 rows, a lane each, and a ballot over one bit gives the tile's rows of one offset, in
// order.
#include <algorithm>
#include <utility>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_primitives.h"
#include "voxconv/backends/cuda/map_conversions.h"
#include "voxconv/backends/cuda/row_masks.h"

namespace voxconv {
namespace {

constexpr int kBlock = 256;
constexpr int kTileRows = 32;
constexpr unsigned kWarp = 0xffffffffu;

__device__ int LaneId() { return threadIdx.x % 32; }
__device__ int64_t GlobalWarp() { return (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32; }

// A warp makes the masks of 32 rows: lanes are the offsets of one word, so that every table entry
// is read once and together with its neighbours. Grid: (tiles, words).
__global__ void MaskRows(const int32_t* table, int64_t rows, int num_offsets, OffsetRange offsets,
                         int words, uint32_t* masks) {
  const int word = blockIdx.y;
  const int32_t k = offsets.first + 32 * word + LaneId();
  const int64_t first_row = GlobalWarp() * kTileRows;
  uint32_t mine = 0;
#pragma unroll 8
  for (int r = 0; r < kTileRows; ++r) {
    const int64_t row = first_row + r;
    const bool present = row < rows && k < offsets.last && table[row * num_offsets + k] >= 0;
    const uint32_t mask = __ballot_sync(kWarp, present);
    if (r == LaneId()) mine = mask;
  }
  const int64_t row = first_row + LaneId();
  if (row < rows) masks[row * words + word] = mine;
}

// Lane j's result: in how many of the tile's rows bit j is set.
__device__ int32_t CountBits(uint32_t mask) {
  int32_t mine = 0;
#pragma unroll
  for (int bit = 0; bit < 32; ++bit) {
    const int32_t count = __popc(__ballot_sync(kWarp, mask >> bit & 1));
    if (bit == LaneId()) mine = count;
  }
  return mine;
}

__device__ uint32_t MaskOfLane(const uint32_t* masks, int64_t tile, int64_t rows, int words,
                               int word) {
  const int64_t row = tile * kTileRows + LaneId();
  return row < rows ? masks[row * words + word] : 0;
}

// totals[k] += the pairs of offset k; `totals` starts at 0. Grid: (any, words).
__global__ void CountTotals(const uint32_t* masks, int64_t rows, int num_offsets, int words,
                            int64_t tiles, unsigned long long* totals) {
  __shared__ int32_t block_count[32];
  if (threadIdx.x < 32) block_count[threadIdx.x] = 0;
  __syncthreads();
  const int64_t warps = int64_t{gridDim.x} * blockDim.x / 32;
  int32_t count = 0;
  for (int64_t tile = GlobalWarp(); tile < tiles; tile += warps) {
    count += CountBits(MaskOfLane(masks, tile, rows, words, blockIdx.y));
  }
  if (count > 0) atomicAdd(&block_count[LaneId()], count);
  __syncthreads();
  const int k = 32 * blockIdx.y + threadIdx.x;
  if (threadIdx.x < 32 && k < num_offsets && block_count[threadIdx.x] > 0) {
    atomicAdd(&totals[k], static_cast<unsigned long long>(block_count[threadIdx.x]));
  }
}

// counts[k * tiles + tile]. Grid: (tiles, words).
__global__ void CountTiles(const uint32_t* masks, int64_t rows, int num_offsets, int words,
                           int64_t tiles, int32_t* counts) {
  const int64_t tile = GlobalWarp();
  if (tile >= tiles) return;
  const int32_t count = CountBits(MaskOfLane(masks, tile, rows, words, blockIdx.y));
  const int64_t k = 32 * blockIdx.y + LaneId();
  if (k < num_offsets) counts[k * tiles + tile] = count;
}

// begin[k * tiles + tile]: position of the tile's first pair of offset k. Grid: (tiles, words).
__global__ void WritePairs(const int32_t* table, const uint32_t* masks, int64_t rows,
                           int num_offsets, int words, int64_t tiles, const int64_t* begin,
                           int32_t* in, int32_t* out) {
  const int64_t tile = GlobalWarp();
  if (tile >= tiles) return;
  const int64_t row = tile * kTileRows + LaneId();
  const uint32_t mask = MaskOfLane(masks, tile, rows, words, blockIdx.y);
  const int first = 32 * blockIdx.y, bits = min(32, num_offsets - first);
  const int64_t my_begin = LaneId() < bits ? begin[(int64_t{first} + LaneId()) * tiles + tile] : 0;
  const uint32_t lanes_before = (1u << LaneId()) - 1;
  for (int bit = 0; bit < bits; ++bit) {
    const uint32_t present = __ballot_sync(kWarp, mask >> bit & 1);
    const int64_t base = __shfl_sync(kWarp, my_begin, bit);
    if ((mask >> bit & 1) == 0) continue;
    const int64_t position = base + __popc(present & lanes_before);
    in[position] = table[row * num_offsets + first + bit];
    out[position] = static_cast<int32_t>(row);
  }
}

// A warp a tile, a grid row a mask word.
dim3 TileGrid(int64_t tiles, int words) {
  dim3 grid = GridFor(tiles * 32, kBlock);
  grid.y = words;
  return grid;
}

int WordsFor(int num_offsets) { return static_cast<int>(CeilDiv(num_offsets, 32)); }

}  // namespace

absl::Status FillMasks(const int32_t* table, int64_t rows, int num_offsets, OffsetRange offsets,
                       int words, uint32_t* masks, const ExecutionContext& context) {
  VOXCONV_LAUNCH(MaskRows, TileGrid(CeilDiv(rows, kTileRows), words), kBlock, 0, context, table,
                 rows, num_offsets, offsets, words, masks);
  return absl::OkStatus();
}

absl::StatusOr<SharedArray<uint32_t>> RowMasks(const KernelMap& table_map,
                                               const ExecutionContext& context) {
  const NeighbourTable& table = table_map.table();
  if (!table.masks.empty()) return table.masks;
  const int num_offsets = table_map.num_offsets(), words = WordsFor(num_offsets);
  const int64_t rows = table_map.num_outputs();
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> masks, AllocateArray<uint32_t>(rows * words, context));
  VOXCONV_RETURN_IF_ERROR(FillMasks(table.table.data(), rows, num_offsets, {0, num_offsets}, words,
                                    masks.data(), context));
  return SharedArray<uint32_t>(std::move(masks));
}

absl::StatusOr<Array<int64_t>> CountMaskBits(const SharedArray<uint32_t>& masks, int64_t rows,
                                             int num_offsets, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<int64_t> totals, AllocateArray<int64_t>(num_offsets, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(totals.data(), 0, totals.bytes(), *context.stream));
  if (rows == 0 || num_offsets == 0) return totals;
  const int words = WordsFor(num_offsets);
  const int64_t tiles = CeilDiv(rows, kTileRows);
  dim3 grid = TileGrid(tiles, words);
  // Few blocks: each adds to all of the totals once.
  grid.x = std::min(grid.x, 2u * AsCuda(context).num_multiprocessors());
  // CUDA adds to unsigned 64-bit numbers alone.
  static_assert(sizeof(unsigned long long) == sizeof(int64_t));
  VOXCONV_LAUNCH(CountTotals, grid, kBlock, 0, context, masks.data(), rows, num_offsets, words,
                 tiles, reinterpret_cast<unsigned long long*>(totals.data()));
  return totals;
}

absl::StatusOr<PairList> TableToPairs(const KernelMap& map, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(PairBuffers pairs, PairBuffers::Allocate(map.num_pairs(), context));
  if (map.num_pairs() == 0) return PairList(std::move(pairs));
  VOXCONV_ASSIGN_OR_RETURN(SharedArray<uint32_t> masks, RowMasks(map, context));
  const int64_t rows = map.num_outputs(), tiles = CeilDiv(rows, kTileRows);
  const int num_offsets = map.num_offsets(), words = WordsFor(num_offsets);
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> counts,
                           AllocateArray<int32_t>(num_offsets * tiles, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int64_t> begin, AllocateArray<int64_t>(counts.size(), context));
  const dim3 grid = TileGrid(tiles, words);
  VOXCONV_LAUNCH(CountTiles, grid, kBlock, 0, context, masks.data(), rows, num_offsets, words,
                 tiles, counts.data());
  VOXCONV_RETURN_IF_ERROR(ExclusiveSum(counts.data(), begin.data(), counts.size(), context));
  VOXCONV_LAUNCH(WritePairs, grid, kBlock, 0, context, map.table().table.data(), masks.data(), rows,
                 num_offsets, words, tiles, begin.data(), pairs.in.data(), pairs.out.data());
  return PairList(std::move(pairs));
}

}  // namespace voxconv
