// SPDX-License-Identifier: Apache-2.0
// One kernel from inputs to outputs: into a bitmap, a list in no order, or room of each input's
// own.
//
// The bitmap has two levels where its box is large, as LiDAR frames' are (10^9 cells at stride 2,
// for less than 10^5 outputs): a bit for every brick of 256 consecutive cells, and the bits of
// those bricks alone that have outputs, in order.
#include <vector>

#include "voxconv/mapping/output_coords/each_output_cuda.cuh"
#include "voxconv/mapping/output_coords/unique_rows_cuda.cuh"

namespace voxconv {
namespace {

using unique_rows::Bitmap;
using unique_rows::SortedKeys;
using unique_rows::Tiles;

constexpr int kThreads = 256;

// Three passes over one level of this size take no longer than the kernels of a second level.
constexpr int64_t kMaxFlatBytes = int64_t{4} << 20;
// There may be so many bricks for each output there can be, or this many in any case; beyond, keys
// are sorted.
constexpr int64_t kMaxBricksPerKey = 512;
constexpr int64_t kMinMaxBricks = int64_t{1} << 26;
constexpr int kBrickBits = 8;
constexpr int64_t kMaxMarkedBricks = int64_t{1} << 25;  // with outputs: 1 GiB of bits

// Most bits have been set before, by another input, and often by the lane before, as inputs come
// sorted; atomics on one word would queue up.
__device__ inline void SetBit(uint32_t* words, uint64_t bit) {
  const unsigned active = __activemask();
  const unsigned lane = threadIdx.x % 32;
  const uint64_t before = __shfl_up_sync(active, bit, 1);
  if (lane > 0 && (active >> (lane - 1) & 1) != 0 && before == bit) return;
  uint32_t* const word = words + bit / 32;
  const uint32_t mask = 1u << bit % 32;
  if ((__ldcg(word) & mask) == 0) atomicOr(word, mask);
}

__global__ void __launch_bounds__(kThreads) MarkKernel(ExpansionLevelCuda level, uint32_t* words) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= level.inputs.Size()) return;
  EachOutput(level, row, [&](const Coordinate& q) { SetBit(words, level.cells.NumberOf(q)); });
}

struct Bricks {
  uint32_t* marks;   // a bit for each brick: whether it has outputs
  uint32_t* rank;    // [words of marks] such bricks before the word; unset where the word is 0
  uint64_t* number;  // [rank] the brick's
  uint32_t* bits;    // [rank, 8] of its cells

  __device__ int64_t RankOf(uint64_t brick) const {
    const uint32_t before = marks[brick / 32] & ((1u << brick % 32) - 1);
    return int64_t{rank[brick / 32]} + __popc(before);
  }
};

// The marks, for unique_rows::CountTiles: word by word, as marks come in clusters.
struct BrickMarks {
  const uint32_t* words;
  int64_t size;

  __device__ int Count(int64_t i) const { return __popc(words[i]); }
};

// The cells of ranked bricks, for unique_rows::Compact.
struct BrickCells {
  Bitmap bits;
  const uint64_t* number;
  int64_t size;

  __device__ int Count(int64_t i) const { return bits.Count(i); }
  template <typename Visit>
  __device__ void Each(int64_t i, const Visit& visit) const {
    // An item is 128 bits: half a brick.
    const uint64_t first = (number[i / 2] << kBrickBits) - static_cast<uint64_t>(i / 2 * 256);
    bits.Each(i, [&](uint64_t bit) { visit(first + bit); });
  }
};

__global__ void __launch_bounds__(kThreads)
    MarkBricksKernel(const __grid_constant__ PerLevel<ExpansionLevelCuda> levels,
                     const __grid_constant__ PerLevel<Bricks> bricks) {
  const ExpansionLevelCuda& level = levels.at[blockIdx.y];
  uint32_t* const marks = bricks.at[blockIdx.y].marks;
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= level.inputs.Size()) return;
  EachOutput(level, row,
             [&](const Coordinate& q) { SetBit(marks, level.cells.NumberOf(q) >> kBrickBits); });
}

// Of marks counted by tiles of words.
__global__ void __launch_bounds__(kThreads)
    RankBricksKernel(const __grid_constant__ PerLevel<Bricks> all_bricks,
                     const __grid_constant__ PerLevel<Tiles<BrickMarks>> all_tiles) {
  using Reduce = cub::BlockReduce<int64_t, kThreads>;
  using Scan = cub::BlockScan<int32_t, kThreads>;
  __shared__ union {
    typename Reduce::TempStorage reduce;
    typename Scan::TempStorage scan;
  } temp;
  __shared__ int64_t first;
  const Bricks& bricks = all_bricks.at[blockIdx.y];
  const auto& [marks, tile, counts, num_tiles] = all_tiles.at[blockIdx.y];
  if (blockIdx.x >= num_tiles || counts[blockIdx.x] == 0) return;  // alike for the whole block
  int64_t before = 0;
  for (unsigned t = threadIdx.x; t < blockIdx.x; t += kThreads) before += counts[t];
  before = Reduce(temp.reduce).Sum(before);
  if (threadIdx.x == 0) first = before;
  __syncthreads();

  int64_t base = first;
  const int64_t begin = blockIdx.x * tile;
  const int64_t end = min(begin + tile, marks.size);
  for (int64_t chunk = begin; chunk < end; chunk += kThreads) {
    const int64_t mine = chunk + threadIdx.x;
    const uint32_t word = mine < end ? bricks.marks[mine] : 0;
    if (__syncthreads_or(static_cast<int>(word)) == 0) continue;
    int32_t position = 0, total = 0;
    Scan(temp.scan).ExclusiveSum(__popc(word), position, total);
    if (word != 0) bricks.rank[mine] = static_cast<uint32_t>(base + position);
    for (uint32_t rest = word; rest != 0; rest &= rest - 1) {
      bricks.number[base + position++] =
          static_cast<uint64_t>(mine) * 32 + (__ffs(static_cast<int>(rest)) - 1);
    }
    base += total;
  }
}

__global__ void __launch_bounds__(kThreads)
    MarkCellsKernel(const __grid_constant__ PerLevel<ExpansionLevelCuda> levels,
                    const __grid_constant__ PerLevel<Bricks> all_bricks) {
  const ExpansionLevelCuda& level = levels.at[blockIdx.y];
  const Bricks& bricks = all_bricks.at[blockIdx.y];
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= level.inputs.Size()) return;
  EachOutput(level, row, [&](const Coordinate& q) {
    const uint64_t number = level.cells.NumberOf(q);
    const int64_t first = bricks.RankOf(number >> kBrickBits) << kBrickBits;
    SetBit(bricks.bits, static_cast<uint64_t>(first) + number % (1 << kBrickBits));
  });
}

template <typename Key>
__global__ void __launch_bounds__(kThreads)
    AppendKernel(ExpansionLevelCuda level, Key* keys, unsigned long long* size) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= level.inputs.Size()) return;
  EachOutput(level, row, [&](const Coordinate& q) {
    keys[atomicAdd(size, 1ull)] = static_cast<Key>(level.cells.NumberOf(q));
  });
}

template <typename Key>
__global__ void __launch_bounds__(kThreads) WriteOwnKernel(ExpansionLevelCuda level, Key* keys) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= level.inputs.bound) return;
  Key* to = keys + row * level.max_outputs;
  Key* const end = to + level.max_outputs;
  if (row < level.inputs.Size()) {
    EachOutput(level, row,
               [&](const Coordinate& q) { *to++ = static_cast<Key>(level.cells.NumberOf(q)); });
  }
  while (to < end) *to++ = SortedKeys<Key>::kNone;
}

absl::Status MarkAndRead(const ExpansionLevelCuda& level, const ExecutionContext& context) {
  const int64_t size = CeilDiv(static_cast<int64_t>(level.cells.count), 128);
  VOXCONV_ASSIGN_OR_RETURN(Array<uint4> words, AllocateArray<uint4>(size, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(words.data(), 0, words.bytes(), *context.stream));
  VOXCONV_LAUNCH(MarkKernel, GridFor(level.inputs.bound, kThreads), kThreads, 0, context, level,
                 reinterpret_cast<uint32_t*>(words.data()));
  return unique_rows::Compact(Bitmap{words.data(), size}, level, context);
}

// Sizes of a level's bricks, and where they are in memory that levels share.
struct BrickRoom {
  int64_t mark_words;  // as many ranks
  int64_t max_ranks;

  explicit BrickRoom(const ExpansionLevelCuda& level) {
    const auto bricks = static_cast<int64_t>(((level.cells.count - 1) >> kBrickBits) + 1);
    // Whole vectors: levels lie one behind the other.
    mark_words = CeilDiv(CeilDiv(bricks, 32), 4) * 4;
    max_ranks = std::min(bricks, level.max_keys());
  }
  // The bits of the ranked bricks, then the marks: all that must be zero.
  int64_t zero_bytes() const { return 32 * max_ranks + 4 * mark_words; }
  int64_t rank_bytes() const { return 4 * mark_words; }
  int64_t number_bytes() const { return 8 * max_ranks; }
};

// At most kMaxLevelsTogether.
absl::Status MarkBricksAndRead(absl::Span<const ExpansionLevelCuda> levels,
                               const ExecutionContext& context) {
  int64_t zero_bytes = 0, other_bytes = 0, most_inputs = 0;
  PerLevel<ExpansionLevelCuda> all_levels{};
  for (size_t i = 0; i < levels.size(); ++i) {
    const BrickRoom room(levels[i]);
    all_levels.at[i] = levels[i];
    zero_bytes += room.zero_bytes();
    other_bytes += room.number_bytes() + room.rank_bytes();
    most_inputs = std::max(most_inputs, levels[i].inputs.bound);
  }
  VOXCONV_ASSIGN_OR_RETURN(Array<uint8_t> zeros, AllocateArray<uint8_t>(zero_bytes, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint8_t> others, AllocateArray<uint8_t>(other_bytes, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(zeros.data(), 0, zeros.bytes(), *context.stream));

  PerLevel<Bricks> bricks{};
  std::vector<BrickMarks> marks;
  std::vector<BrickCells> cells;
  uint8_t *zero = zeros.data(), *other = others.data();
  for (size_t i = 0; i < levels.size(); ++i) {
    const BrickRoom room(levels[i]);
    auto* const bits = reinterpret_cast<uint32_t*>(zero);
    bricks.at[i] = {.marks = bits + 8 * room.max_ranks,
                    .rank = reinterpret_cast<uint32_t*>(other + room.number_bytes()),
                    .number = reinterpret_cast<uint64_t*>(other),
                    .bits = bits};
    marks.push_back({bricks.at[i].marks, room.mark_words});
    cells.push_back({{reinterpret_cast<const uint4*>(bits), 2 * room.max_ranks},
                     bricks.at[i].number,
                     2 * room.max_ranks});
    zero += room.zero_bytes();
    other += room.number_bytes() + room.rank_bytes();
  }

  dim3 inputs_grid = GridFor(most_inputs, kThreads);
  inputs_grid.y = static_cast<unsigned>(levels.size());
  VOXCONV_LAUNCH(MarkBricksKernel, inputs_grid, kThreads, 0, context, all_levels, bricks);
  Array<int32_t> counts;
  VOXCONV_ASSIGN_OR_RETURN(const PerLevel<Tiles<BrickMarks>> tiles,
                           unique_rows::CountTiles<BrickMarks>(marks, counts, context));
  VOXCONV_LAUNCH(RankBricksKernel, unique_rows::GridOf(tiles, levels.size()), kThreads, 0, context,
                 bricks, tiles);
  VOXCONV_LAUNCH(MarkCellsKernel, inputs_grid, kThreads, 0, context, all_levels, bricks);
  return unique_rows::Compact<BrickCells>(cells, levels, context);
}

template <typename Key>
absl::Status AppendAndSort(const ExpansionLevelCuda& level, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<Key> keys, AllocateArray<Key>(level.max_keys(), context));
  VOXCONV_ASSIGN_OR_RETURN(Array<unsigned long long> size,
                           AllocateArray<unsigned long long>(1, context));
  static_assert(SortedKeys<Key>::kNone == ~Key{0});
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(keys.data(), 0xff, keys.bytes(), *context.stream));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(size.data(), 0, size.bytes(), *context.stream));
  VOXCONV_LAUNCH(AppendKernel<Key>, GridFor(level.inputs.bound, kThreads), kThreads, 0, context,
                 level, keys.data(), size.data());
  return SortUniqueRows(std::move(keys), level, context);
}

template <typename Key>
absl::Status WriteAndSort(const ExpansionLevelCuda& level, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<Key> keys, AllocateArray<Key>(level.max_keys(), context));
  VOXCONV_LAUNCH(WriteOwnKernel<Key>, GridFor(level.inputs.bound, kThreads), kThreads, 0, context,
                 level, keys.data());
  return SortUniqueRows(std::move(keys), level, context);
}

// Whether bricks are not too many.
bool TakesBricks(const ExpansionLevelCuda& level) {
  const auto max_bricks =
      static_cast<uint64_t>(std::max(kMinMaxBricks, kMaxBricksPerKey * level.max_keys()));
  return level.cells.count >> kBrickBits <= max_bricks && level.max_keys() <= kMaxMarkedBricks;
}

}  // namespace

absl::Status FusedLevelsCuda(absl::Span<const ExpansionLevelCuda> levels,
                             const ExecutionContext& context) {
  if (levels.size() == 1) return FusedLevelCuda(levels[0], context);
  std::vector<ExpansionLevelCuda> together;
  for (const ExpansionLevelCuda& level : levels) {
    if (TakesBricks(level) && together.size() < kMaxLevelsTogether) {
      together.push_back(level);
    } else {
      VOXCONV_RETURN_IF_ERROR(FusedLevelCuda(level, context));
    }
  }
  return together.empty() ? absl::OkStatus() : MarkBricksAndRead(together, context);
}

absl::Status FusedLevelCuda(const ExpansionLevelCuda& level, const ExecutionContext& context) {
  if (level.cells.count / 8 <= kMaxFlatBytes) return MarkAndRead(level, context);
  if (TakesBricks(level)) return MarkBricksAndRead({&level, 1}, context);
  return AppendedLevelCuda(level, context);
}

absl::Status AppendedLevelCuda(const ExpansionLevelCuda& level, const ExecutionContext& context) {
  return level.cells.count < kMaxNarrowCells ? AppendAndSort<uint32_t>(level, context)
                                             : AppendAndSort<uint64_t>(level, context);
}

absl::Status SortUniqueLevelCuda(const ExpansionLevelCuda& level, const ExecutionContext& context) {
  return level.cells.count < kMaxNarrowCells ? WriteAndSort<uint32_t>(level, context)
                                             : WriteAndSort<uint64_t>(level, context);
}

}  // namespace voxconv
