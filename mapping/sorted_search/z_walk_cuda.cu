// SPDX-License-Identifier: Apache-2.0
// Keys ascend with z fastest, so the voxels q + d for all offsets d of one (x, y) lie next to each
// other in the source: a column of the kernel takes one search.
#include <algorithm>
#include <utility>
#include <vector>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/neighbour_query.cuh"
#include "voxconv/mapping/sorted_search/sorted_keys_view.cuh"
#include "voxconv/mapping/sorted_search/sorted_search_cuda.h"
#include "voxconv/mapping/sorted_search/table_writer.cuh"

namespace voxconv {
namespace {

constexpr int kThreads = 256;
// Of a multiprocessor; those before compute capability 8.0 hold 1024 threads.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kBlocks = 4;
#else
constexpr int kBlocks = 5;
#endif
// Offsets found by one walk; a taller column of offsets takes several.
constexpr int kMaxHeight = 8;
// Columns that a thread searches for side by side: their chains of dependent loads overlap.
constexpr int kLanes = 3;
// Source keys of a column that are loaded without a look at them: the height of the usual kernels.
constexpr int kWindow = 3;

// Columns of one launch: as many as fit a kernel's parameters.
struct Columns {
  static constexpr int kMaxOffsets = 128;

  int count = 0;
  int num_offsets = 0;
  bool checked = false;         // whether row + offset may leave the coordinate range
  uint32_t step = 0;            // from an offset of a column to the next
  Int3 offset[kMaxOffsets];     // column by column, ascending
  uint64_t delta[kMaxOffsets];  // KeyDelta of each
  int16_t k[kMaxOffsets];       // kernel offset of each, 32767 at most
  uint8_t first[kMaxOffsets];   // offset of each column
  uint8_t height[kMaxOffsets];  // its number of offsets
};

// Ascending by (x, y, z), as many launches as needed. Offsets of a column are evenly spaced.
std::vector<Columns> MakeColumns(const MapProblem& problem, int probed) {
  const auto offsets = problem.geometry.input_offsets();
  std::vector<int> order(probed);
  for (int k = 0; k < probed; ++k) order[k] = k;
  const auto before = [&](int a, int b) {
    const Int3 &d = offsets[a], &e = offsets[b];
    return d.x != e.x ? d.x < e.x : d.y != e.y ? d.y < e.y : d.z < e.z;
  };
  std::sort(order.begin(), order.end(), before);
  const bool checked = !problem.outputs.StaysInRange(offsets);
  std::vector<Columns> launches;
  for (size_t i = 0; i < order.size();) {
    const Int3& lowest = offsets[order[i]];
    size_t end = i;
    while (end < order.size() && end - i < kMaxHeight && offsets[order[end]].x == lowest.x &&
           offsets[order[end]].y == lowest.y) {
      ++end;
    }
    const int height = static_cast<int>(end - i);
    if (launches.empty() || launches.back().num_offsets + height > Columns::kMaxOffsets) {
      launches.emplace_back().checked = checked;
    }
    Columns& columns = launches.back();
    columns.first[columns.count] = static_cast<uint8_t>(columns.num_offsets);
    columns.height[columns.count] = static_cast<uint8_t>(height);
    if (height > 1) columns.step = offsets[order[i + 1]].z - lowest.z;
    ++columns.count;
    for (; i < end; ++i, ++columns.num_offsets) {
      columns.offset[columns.num_offsets] = offsets[order[i]];
      columns.delta[columns.num_offsets] = KeyDelta(offsets[order[i]]);
      columns.k[columns.num_offsets] = static_cast<int16_t>(order[i]);
    }
  }
  return launches;
}

// A block's output rows: kThreads threads for all groups of kLanes columns of each.
int TileRows(const Columns& columns) {
  return kThreads / static_cast<int>(CeilDiv(columns.count, kLanes));
}

// What a block knows of its rows until it writes them, each at once: rows may lie anywhere.
struct Tile {
  int32_t* row;     // [tile_rows]
  uint32_t* masks;  // [tile_rows, words]
  int32_t* table;   // [tile_rows, K]: positions in the source

  static size_t Bytes(int tile_rows, int num_offsets, int words) {
    return tile_rows * (1 + words + num_offsets) * sizeof(int32_t);
  }
  __device__ Tile(int32_t* memory, int tile_rows, int words)
      : row(memory),
        masks(reinterpret_cast<uint32_t*>(memory + tile_rows)),
        table(memory + tile_rows * (1 + words)) {}

  // kCells: the table too, of which only cells with a voxel are written.
  template <bool kCells>
  __device__ void Clear(const SortedKeysView& outputs, int64_t first_query, int num_rows,
                        const TableWriter& writer) {
    for (int i = threadIdx.x; i < num_rows; i += kThreads) row[i] = outputs.RowAt(first_query + i);
    for (int i = threadIdx.x; i < num_rows * writer.words; i += kThreads) masks[i] = 0;
    if constexpr (kCells) {
      for (int i = threadIdx.x; i < num_rows * writer.num_offsets; i += kThreads) table[i] = -1;
    }
  }
  // Threads take consecutive cells, so that rows that follow each other are written in whole lines.
  __device__ void Write(const SortedKeysView& source, int num_rows,
                        const TableWriter& writer) const {
    const int num_offsets = writer.num_offsets, words = writer.words;
    // Cell i is cell k of row r; no division but the first two.
    int r = static_cast<int>(threadIdx.x) / num_offsets;
    int k = static_cast<int>(threadIdx.x) - r * num_offsets;
    const int r_step = kThreads / num_offsets, k_step = kThreads - r_step * num_offsets;
#pragma unroll 4
    for (int i = threadIdx.x; i < num_rows * num_offsets; i += kThreads) {
      const int32_t position = table[i];
      writer.table[int64_t{row[r]} * num_offsets + k] = position < 0 ? -1 : source.RowAt(position);
      r += r_step;
      k += k_step;
      if (k >= num_offsets) {
        k -= num_offsets;
        ++r;
      }
    }
    for (int i = threadIdx.x; i < num_rows * words; i += kThreads) {
      writer.masks[int64_t{row[i / words]} * words + i % words] = masks[i];
    }
  }
};

// position[i] = LowerBound of key[i] in the whole source.
__device__ __forceinline__ void SearchSideBySide(const SortedKeysView& source,
                                                 const uint64_t (&key)[kLanes],
                                                 uint32_t (&position)[kLanes]) {
#pragma unroll
  for (int i = 0; i < kLanes; ++i) position[i] = 0;
  uint32_t length = static_cast<uint32_t>(source.size);
  while (length > 1) {
    const uint32_t half = length / 2;
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      position[i] += __ldg(source.keys + (position[i] + half - 1)) < key[i] ? half : 0;
    }
    length -= half;
  }
  // Where the source is empty, this compares with its end.
#pragma unroll
  for (int i = 0; i < kLanes; ++i) position[i] += __ldg(source.keys + position[i]) < key[i];
}

// One thread's output row.
template <bool kStaged>
struct Query {
  const SortedKeysView& source;
  const Columns& columns;
  const TableWriter& writer;
  const Tile& tile;
  int tile_row;
  int32_t row;
  uint64_t key;

  // Any column. `position`: of the first source key not below the column's lowest.
  __device__ void Walk(int column, uint32_t position) const {
    const int first = columns.first[column];
    uint64_t found = __ldg(source.keys + position);
    for (int j = first; j < first + columns.height[column]; ++j) {
      const uint64_t sought = key + columns.delta[j];
      while (found < sought) found = __ldg(source.keys + ++position);
      if (found != sought) continue;
      if (columns.checked && !IsNeighbour(found, key, columns.offset[j])) continue;
      const int k = columns.k[j];
      if constexpr (kStaged) {
        tile.table[tile_row * writer.num_offsets + k] = static_cast<int32_t>(position);
        atomicOr(tile.masks + tile_row * writer.words + k / 32, 1u << k % 32);
      } else {
        writer.Write(row, k, source.RowAt(position));
      }
    }
  }

  // Columns of at most kWindow offsets between which there are no voxels: these are among the next
  // kWindow source keys, all of which are loaded at once. Staged, all cells are written, those
  // without a voxel too: branches would cost more.
  __device__ void LookAhead(int first_column, const uint64_t (&lowest)[kLanes],
                            const uint32_t (&position)[kLanes]) const {
    uint32_t rise[kLanes][kWindow];  // of the keys above the lowest; UINT32_MAX where it is more
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
#pragma unroll
      for (int w = 0; w < kWindow; ++w) {
        const uint32_t at = min(position[i] + w, static_cast<uint32_t>(source.size));
        const uint64_t above = __ldg(source.keys + at) - lowest[i];
        rise[i][w] = above >> 32 == 0 ? static_cast<uint32_t>(above) : UINT32_MAX;
      }
    }
    uint32_t mask = 0;  // where K is 32 at most
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      if (first_column + i >= columns.count) break;
      const int first = columns.first[first_column + i];
      const int height = columns.height[first_column + i];
#pragma unroll
      for (int j = 0; j < kWindow; ++j) {
        if (j >= height) break;
        int32_t found = -1;
#pragma unroll
        for (int w = 0; w < kWindow; ++w) {
          if (rise[i][w] == j * columns.step) found = static_cast<int32_t>(position[i] + w);
        }
        const int k = columns.k[first + j];
        if constexpr (kStaged) {
          tile.table[tile_row * writer.num_offsets + k] = found;
          if (writer.words == 1) {
            mask |= static_cast<uint32_t>(found >= 0) << k;
          } else if (found >= 0) {
            atomicOr(tile.masks + tile_row * writer.words + k / 32, 1u << k % 32);
          }
        } else if (found >= 0) {
          writer.Write(row, k, source.RowAt(found));
        }
      }
    }
    if (kStaged && mask != 0) atomicOr(tile.masks + tile_row, mask);
  }
};

// kStaged: these are all offsets, and the block writes whole rows of the table. Otherwise the table
// has been cleared and its cells are written one by one. kDense: LookAhead serves all columns.
template <bool kStaged, bool kDense>
__global__ void __launch_bounds__(kThreads, kBlocks)
    WalkKernel(const SortedKeysView source, const SortedKeysView outputs,
               const __grid_constant__ Columns columns, const int tile_rows,
               const TableWriter writer) {
  extern __shared__ int32_t memory[];
  Tile tile(memory, tile_rows, writer.words);
  const int64_t first_query = int64_t{blockIdx.x} * tile_rows;
  const int num_rows =
      static_cast<int>(min(static_cast<int64_t>(tile_rows), outputs.size - first_query));
  if constexpr (kStaged) {
    tile.Clear<!kDense>(outputs, first_query, num_rows, writer);
    __syncthreads();
  }
  const int r = static_cast<int>(threadIdx.x) % tile_rows;
  const int first_column = static_cast<int>(threadIdx.x) / tile_rows * kLanes;
  if (r < num_rows && first_column < columns.count) {
    Query<kStaged> query{source, columns, writer, tile, r};
    query.key = __ldg(outputs.keys + first_query + r);
    if constexpr (!kStaged) query.row = outputs.RowAt(first_query + r);
    uint64_t lowest[kLanes];
    uint32_t position[kLanes];
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const int column = min(first_column + i, columns.count - 1);
      lowest[i] = query.key + columns.delta[columns.first[column]];
    }
    SearchSideBySide(source, lowest, position);
    if constexpr (kDense) {
      query.LookAhead(first_column, lowest, position);
    } else {
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        if (first_column + i < columns.count) query.Walk(first_column + i, position[i]);
      }
    }
  }
  if constexpr (kStaged) {
    __syncthreads();
    tile.Write(source, num_rows, writer);
  }
}

template <bool kStaged, bool kDense>
absl::Status Launch(const SortedSearchCuda& search, const SortedKeysCuda& outputs,
                    const Columns& columns, const TableWriter& writer,
                    const ExecutionContext& context) {
  const int tile_rows = TileRows(columns);
  const size_t bytes =
      kStaged ? Tile::Bytes(tile_rows, writer.num_offsets, writer.words) : size_t{0};
  VOXCONV_LAUNCH((WalkKernel<kStaged, kDense>), GridFor(outputs.size(), tile_rows), kThreads, bytes,
                 context, SortedKeysView(search.source), SortedKeysView(outputs), columns,
                 tile_rows, writer);
  return absl::OkStatus();
}

// Whether LookAhead serves: a column's voxels are the next kWindow ones at most.
bool IsDense(const MapProblem& problem, const Columns& columns) {
  return !columns.checked &&
         columns.step <= static_cast<uint32_t>(problem.inputs.tensor_stride().z) &&
         *std::max_element(columns.height, columns.height + columns.count) <= kWindow;
}

}  // namespace

absl::StatusOr<KernelMap> ZWalkSearch(const SortedSearchCuda& search, const SortedKeysCuda& outputs,
                                      const ExecutionContext& context) {
  const MapProblem& problem = search.problem;
  const int64_t rows = problem.outputs.size();
  VOXCONV_ASSIGN_OR_RETURN(NeighbourArrays arrays, AllocateNeighbours(problem, context));
  const TableWriter writer(problem, arrays, search.symmetric);
  const int probed = NumProbed(problem, search.symmetric);
  const std::vector<Columns> launches = MakeColumns(problem, probed);
  const bool staged = !search.symmetric && launches.size() == 1;
  if (!staged) VOXCONV_RETURN_IF_ERROR(ClearTable(writer, rows, context));
  for (const Columns& columns : launches) {
    const auto launch = IsDense(problem, columns)
                            ? (staged ? &Launch<true, true> : &Launch<false, true>)
                            : (staged ? &Launch<true, false> : &Launch<false, false>);
    VOXCONV_RETURN_IF_ERROR(launch(search, outputs, columns, writer, context));
  }
  if (Counters* counters = context.counters()) counters->queries += probed * rows;
  return MakeNeighbourMap(problem, std::move(arrays));
}

}  // namespace voxconv
