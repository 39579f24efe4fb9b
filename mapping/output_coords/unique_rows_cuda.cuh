// SPDX-License-Identifier: Apache-2.0
// Turns marked or listed cells into a level's rows, which are sorted and without repetitions, and
// finds the rows' bounds.
#ifndef VOXCONV_MAPPING_OUTPUT_COORDS_UNIQUE_ROWS_CUDA_CUH_
#define VOXCONV_MAPPING_OUTPUT_COORDS_UNIQUE_ROWS_CUDA_CUH_

#include <algorithm>
#include <cstdint>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "absl/numeric/bits.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_primitives.h"
#include "voxconv/mapping/output_coords/expansion_level_cuda.h"

namespace voxconv {
namespace unique_rows {

constexpr int kThreads = 256;
// The most cell numbers that a block holds before it turns them into rows.
constexpr int kStaged = 2048;
// The most tiles of a level. Each block adds up the counts of all tiles before its own, so there
// must be few.
constexpr int64_t kMaxTiles = 2048;

// Sorted cell numbers with repetitions. Entries that are no output have all bits set and come last.
template <typename Key>
struct SortedKeys {
  static constexpr Key kNone = ~Key{0};
  const Key* keys;
  int64_t size;

  __device__ int Count(int64_t i) const {
    return keys[i] != kNone && (i == 0 || keys[i] != keys[i - 1]);
  }
  template <typename Visit>
  __device__ void Each(int64_t i, const Visit& visit) const {
    if (Count(i) != 0) visit(static_cast<uint64_t>(keys[i]));
  }
};

// A bit for every cell. Threads read 128 bits at a time.
struct Bitmap {
  const uint4* words;
  int64_t size;  // in uint4

  __device__ int Count(int64_t i) const {
    const uint4 w = words[i];
    return __popc(w.x) + __popc(w.y) + __popc(w.z) + __popc(w.w);
  }
  template <typename Visit>
  __device__ void Each(int64_t i, const Visit& visit) const {
    const uint4 w = words[i];
    const uint32_t word[4] = {w.x, w.y, w.z, w.w};
    for (int j = 0; j < 4; ++j) {
      for (uint32_t rest = word[j]; rest != 0; rest &= rest - 1) {
        visit(static_cast<uint64_t>(i) * 128 + 32 * j + (__ffs(static_cast<int>(rest)) - 1));
      }
    }
  }
};

// The items of a level, in tiles of `tile` items, and the number of outputs in each tile.
template <typename Source>
struct Tiles {
  Source source;
  int64_t tile;
  int32_t* counts;
  uint32_t num;  // number of tiles
};

// Counts the outputs of each tile. blockIdx.y is the level and blockIdx.x the tile. Blocks beyond a
// level's last tile do nothing.
template <typename Source>
__global__ void __launch_bounds__(kThreads)
    CountKernel(const __grid_constant__ PerLevel<Tiles<Source>> levels) {
  using Reduce = cub::BlockReduce<int32_t, kThreads>;
  __shared__ typename Reduce::TempStorage temp;
  const Tiles<Source>& tiles = levels.at[blockIdx.y];
  if (blockIdx.x >= tiles.num) return;
  const int64_t begin = blockIdx.x * tiles.tile;
  const int64_t end = min(begin + tiles.tile, tiles.source.size);
  int32_t count = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) count += tiles.source.Count(i);
  count = Reduce(temp).Sum(count);
  if (threadIdx.x == 0) tiles.counts[blockIdx.x] = count;
}

// Where the rows of a level go.
struct Target {
  CellsCuda cells;
  Coordinate* outputs;
  LevelInfoCuda* info;
};

// Bounds of the rows that a thread has seen.
struct Extent {
  int32_t lo[3] = {INT32_MAX, INT32_MAX, INT32_MAX};
  int32_t hi[3] = {INT32_MIN, INT32_MIN, INT32_MIN};
  int32_t last_batch = -1;

  __device__ void Add(const Coordinate& c) {
    const int32_t p[3] = {c.x, c.y, c.z};
    for (int axis = 0; axis < 3; ++axis) {
      lo[axis] = min(lo[axis], p[axis]);
      hi[axis] = max(hi[axis], p[axis]);
    }
    last_batch = max(last_batch, c.b);
  }

  // Merges the bounds of all threads of the block into the level's. It merges within warps first
  // and then in shared memory. Atomics of every warp on the same seven words of global memory would
  // wait for each other. All threads of the block must call this function.
  __device__ void Merge(LevelInfoCuda* info) const {
    __shared__ int32_t block[7];
    if (threadIdx.x < 7) block[threadIdx.x] = threadIdx.x < 3 ? INT32_MAX : INT32_MIN;
    __syncthreads();
    for (int axis = 0; axis < 3; ++axis) {
      int32_t least = lo[axis], most = hi[axis];
      for (int lane = 16; lane > 0; lane /= 2) {
        least = min(least, __shfl_xor_sync(~0u, least, lane));
        most = max(most, __shfl_xor_sync(~0u, most, lane));
      }
      if (threadIdx.x % 32 == 0) {
        atomicMin(block + axis, least);
        atomicMax(block + 3 + axis, most);
      }
    }
    if (last_batch >= 0) atomicMax(block + 6, last_batch);
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int axis = 0; axis < 3; ++axis) {
      atomicMin(info->lo + axis, block[axis]);
      atomicMax(info->hi + axis, block[3 + axis]);
    }
    atomicMax(&info->last_batch, block[6]);
  }
};

// Writes the rows of each tile. The threads that hold cells write the cells' numbers to shared
// memory. These threads may be few, so all threads of the block then turn the numbers into rows.
template <typename Source>
__global__ void __launch_bounds__(kThreads)
    WriteKernel(const __grid_constant__ PerLevel<Tiles<Source>> levels,
                const __grid_constant__ PerLevel<Target> targets) {
  using Reduce = cub::BlockReduce<int64_t, kThreads>;
  using Scan = cub::BlockScan<int32_t, kThreads>;
  __shared__ union {
    typename Reduce::TempStorage reduce;
    typename Scan::TempStorage scan;
  } temp;
  __shared__ uint64_t staged[kStaged];
  __shared__ int64_t first;
  const auto& [source, tile, counts, num_tiles] = levels.at[blockIdx.y];
  const Target& target = targets.at[blockIdx.y];
  if (blockIdx.x >= num_tiles) return;
  int64_t before = 0;
  for (unsigned t = threadIdx.x; t < blockIdx.x; t += kThreads) before += counts[t];
  before = Reduce(temp.reduce).Sum(before);
  if (threadIdx.x == 0) {
    first = before;
    if (blockIdx.x == num_tiles - 1) target.info->size = before + counts[blockIdx.x];
  }
  if (counts[blockIdx.x] == 0) return;  // the same for the whole block
  __syncthreads();

  Coordinate* to = target.outputs + first;
  Extent extent;
  const int64_t begin = blockIdx.x * tile;
  const int64_t end = min(begin + tile, source.size);
  for (int64_t chunk = begin; chunk < end; chunk += kThreads) {
    const int64_t mine = chunk + threadIdx.x;
    const int32_t count = mine < end ? source.Count(mine) : 0;
    if (__syncthreads_or(count) == 0) continue;  // most of a bitmap is empty
    int32_t position = 0, total = 0;
    Scan(temp.scan).ExclusiveSum(count, position, total);
    for (int32_t round = 0; round < total; round += kStaged) {
      int32_t next = position - round;
      if (count > 0) {
        source.Each(mine, [&](uint64_t number) {
          if (next >= 0 && next < kStaged) staged[next] = number;
          ++next;
        });
      }
      __syncthreads();
      for (int i = threadIdx.x; i < min(kStaged, total - round); i += kThreads) {
        const Coordinate c = target.cells.At(staged[i]);
        to[round + i] = c;
        extent.Add(c);
      }
      __syncthreads();
    }
    to += total;
  }
  extent.Merge(target.info);
}

// The number of items of a tile, a multiple of kThreads.
inline int64_t TileFor(int64_t size) {
  const int64_t chunks = CeilDiv(size, kThreads);
  return CeilDiv(chunks, std::min(kMaxTiles, chunks)) * kThreads;
}

template <typename Source>
dim3 GridOf(const PerLevel<Tiles<Source>>& levels, size_t num_levels) {
  uint32_t most = 0;
  for (size_t i = 0; i < num_levels; ++i) most = std::max(most, levels.at[i].num);
  return dim3(most, static_cast<unsigned>(num_levels));
}

// Cuts the levels' items into tiles and counts the outputs in each. `counts` becomes the owner of
// the counts' memory.
template <typename Source>
absl::StatusOr<PerLevel<Tiles<Source>>> CountTiles(absl::Span<const Source> sources,
                                                   Array<int32_t>& counts,
                                                   const ExecutionContext& context) {
  PerLevel<Tiles<Source>> levels{};
  int64_t total = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const int64_t tile = TileFor(sources[i].size);
    levels.at[i] = {sources[i], tile, nullptr,
                    static_cast<uint32_t>(CeilDiv(sources[i].size, tile))};
    total += levels.at[i].num;
  }
  VOXCONV_ASSIGN_OR_RETURN(counts, AllocateArray<int32_t>(total, context));
  int32_t* next = counts.data();
  for (size_t i = 0; i < sources.size(); ++i) {
    levels.at[i].counts = next;
    next += levels.at[i].num;
  }
  VOXCONV_LAUNCH(CountKernel<Source>, GridOf(levels, sources.size()), kThreads, 0, context, levels);
  return levels;
}

// Writes outputs and info of each level from its source.
template <typename Source>
absl::Status Compact(absl::Span<const Source> sources, absl::Span<const ExpansionLevelCuda> levels,
                     const ExecutionContext& context) {
  Array<int32_t> counts;
  VOXCONV_ASSIGN_OR_RETURN(const PerLevel<Tiles<Source>> tiles,
                           CountTiles(sources, counts, context));
  PerLevel<Target> targets{};
  for (size_t i = 0; i < levels.size(); ++i) {
    targets.at[i] = {levels[i].cells, levels[i].outputs, levels[i].info};
  }
  VOXCONV_LAUNCH(WriteKernel<Source>, GridOf(tiles, sources.size()), kThreads, 0, context, tiles,
                 targets);
  return absl::OkStatus();
}

template <typename Source>
absl::Status Compact(const Source& source, const ExpansionLevelCuda& level,
                     const ExecutionContext& context) {
  return Compact<Source>({&source, 1}, {&level, 1}, context);
}

}  // namespace unique_rows

// If a level has fewer cells than this, their numbers fit in 32 bits, with room for
// SortedKeys::kNone.
constexpr uint64_t kMaxNarrowCells = uint64_t{1} << 31;

// Makes the level's rows from the cell numbers of its outputs. The numbers are in any order and
// with repetitions. Entries of SortedKeys<Key>::kNone are ignored.
template <typename Key>
absl::Status SortUniqueRows(Array<Key> keys, const ExpansionLevelCuda& level,
                            const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<Key> other, AllocateArray<Key>(keys.size(), context));
  // One bit more than the numbers have puts kNone last.
  const int bits = absl::bit_width(level.cells.count - 1) + 1;
  VOXCONV_ASSIGN_OR_RETURN(const Key* const sorted_keys,
                           SortKeys(keys.data(), other.data(), keys.size(), bits, context));
  const unique_rows::SortedKeys<Key> sorted{sorted_keys, keys.size()};
  return unique_rows::Compact(sorted, level, context);
}

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OUTPUT_COORDS_UNIQUE_ROWS_CUDA_CUH_
