// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_primitives.h"
#include "voxconv/backends/cuda/neighbour_query.cuh"
#include "voxconv/core/map_ops.h"
#include "voxconv/mapping/sorted_search/offset_table_cuda.h"
#include "voxconv/mapping/sorted_search/sorted_keys_view.cuh"
#include "voxconv/mapping/sorted_search/sorted_search_cuda.h"
#include "voxconv/mapping/sorted_search/table_writer.cuh"

namespace voxconv {
namespace {

constexpr int kThreads = 256;
constexpr int kQueryThreads = 128;  // of a query block, Minuet 5.1.4
constexpr int64_t kMaxSharedKeys = 6144;

struct BinarySearch {
  SortedKeysView source;

  __device__ int32_t operator()(const Coordinate&, uint64_t key) const {
    const uint64_t sought = key - kSearchKeyBias;
    const int64_t position = LowerBound(source.keys, 0, source.size, sought);
    return __ldg(source.keys + position) == sought ? source.RowAt(position) : -1;
  }
};

__global__ void __launch_bounds__(kThreads) CentreKernel(const TableWriter writer, int64_t rows) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= rows) return;
  const int centre = writer.num_offsets / 2;
  writer.table[row * writer.num_offsets + centre] = static_cast<int32_t>(row);
  writer.masks[row * writer.words + centre / 32] = 1u << centre % 32;
}

// The queries of one kernel offset, in the order of their keys.
struct Segment {
  const uint64_t* queries;  // of the output rows, less the offset
  Int3 offset;
  uint64_t delta;
  bool checked;
  int k;

  __device__ Segment(const SortedKeysView& outputs, const OffsetChunk& chunk, int i)
      : queries(outputs.keys),
        offset(chunk.offset[i]),
        delta(KeyDelta(chunk.offset[i])),
        checked(chunk.checked),
        k(chunk.first + i) {}

  __device__ uint64_t Key(int64_t query) const { return __ldg(queries + query) + delta; }
  // Whether `found`, the first source key not below that of `query`, is that key.
  __device__ bool Matches(int64_t query, uint64_t found) const {
    return found == Key(query) && (!checked || IsNeighbour(found, queries[query], offset));
  }
  // Writes the pair of `query` if there is one.
  __device__ void Emit(const SortedKeysView& source, const SortedKeysView& outputs, int64_t query,
                       uint64_t found, int64_t position, const TableWriter& writer) const {
    if (Matches(query, found)) writer.Write(outputs.RowAt(query), k, source.RowAt(position));
  }
};

__global__ void __launch_bounds__(kThreads)
    SegmentKernel(const SortedKeysView source, const SortedKeysView outputs,
                  const __grid_constant__ OffsetChunk chunk, const TableWriter writer) {
  const int64_t query = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (query >= outputs.size) return;
  const Segment segment(outputs, chunk, blockIdx.y);
  const int64_t position = LowerBound(source.keys, 0, source.size, segment.Key(query));
  segment.Emit(source, outputs, query, source.keys[position], position, writer);
}

// Blocks of the source and what a segment has for each.
struct SourceBlocks {
  int64_t size;    // keys of a block
  int64_t blocks;  // of the source
  int64_t query_block;
  bool all_queries;  // the last block has the queries above all keys, too
};

// ends[i, b]: the first query of segment i whose key is above the last of source block b;
// pieces[i, b]: the query blocks between that and the end before.
__global__ void __launch_bounds__(kThreads)
    BackwardKernel(const SortedKeysView source, const SortedKeysView outputs,
                   const __grid_constant__ OffsetChunk chunk, const SourceBlocks shape,
                   int32_t* ends, int32_t* pieces) {
  const int64_t b = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (b >= shape.blocks) return;
  const Segment segment(outputs, chunk, blockIdx.y);
  const auto end_of = [&](int64_t block) {
    if (shape.all_queries && block == shape.blocks - 1) return outputs.size;
    const uint64_t pivot = source.keys[min((block + 1) * shape.size, source.size) - 1];
    // q + d > pivot iff q > pivot - d; none of the differences wraps.
    return LowerBound(outputs.keys, 0, outputs.size, pivot - segment.delta + 1);
  };
  const int64_t end = end_of(b);
  const int64_t begin = b == 0 ? 0 : end_of(b - 1);
  const int64_t i = blockIdx.y * shape.blocks + b;
  ends[i] = static_cast<int32_t>(end);
  pieces[i] = static_cast<int32_t>((end - begin + shape.query_block - 1) / shape.query_block);
}

// Which query block a thread block has.
struct Piece {
  int64_t segment, block;  // of the chunk's offsets, of the source
  int64_t begin, end;      // queries
};

// owners[p]: the entry of `ends` that query block p belongs to. A warp writes the query blocks of
// an entry, which the search then need not look for.
__global__ void __launch_bounds__(kThreads)
    OwnerKernel(int64_t count, const int64_t* first_piece, const int32_t* pieces, int32_t* owners,
                int32_t* num_pieces) {
  const int64_t entry = GlobalThread() / 32;
  if (entry >= count) return;
  const int64_t first = first_piece[entry];
  const int32_t here = pieces[entry];
  for (int32_t i = static_cast<int32_t>(threadIdx.x % 32); i < here; i += 32) {
    owners[first + i] = static_cast<int32_t>(entry);
  }
  if (entry == count - 1 && threadIdx.x % 32 == 0) {
    *num_pieces = static_cast<int32_t>(first + here);
  }
}

__device__ Piece PieceOf(const SourceBlocks& shape, const int64_t* first_piece,
                         const int32_t* owners, const int32_t* ends, int64_t index) {
  const int64_t entry = owners[index];
  Piece piece{};
  piece.segment = entry / shape.blocks;
  piece.block = entry % shape.blocks;
  const int64_t first = piece.block == 0 ? 0 : ends[entry - 1];
  piece.begin = first + (index - first_piece[entry]) * shape.query_block;
  piece.end = min(piece.begin + shape.query_block, int64_t{ends[entry]});
  return piece;
}

// [K, N_out]: every query of an offset writes its row, whether it has a pair or not. Where the
// outputs are sorted, neighbouring threads write neighbouring entries.
struct OffsetTableWriter {
  int32_t* table;
  int64_t rows;  // N_out

  __device__ void Write(int32_t out, int k, int32_t in) const { table[k * rows + out] = in; }
};

template <typename Writer>
__global__ void __launch_bounds__(kQueryThreads)
    ForwardKernel(const SortedKeysView source, const SortedKeysView outputs,
                  const __grid_constant__ OffsetChunk chunk, const SourceBlocks shape,
                  const int64_t* first_piece, const int32_t* owners, const int32_t* num_pieces,
                  const int32_t* ends, bool shared_block, const Writer writer) {
  extern __shared__ uint64_t shared_keys[];
  if (static_cast<int64_t>(blockIdx.x) >= *num_pieces) return;
  const Piece piece = PieceOf(shape, first_piece, owners, ends, blockIdx.x);
  const int64_t first = piece.block * shape.size;
  const int64_t length = min(shape.size, source.size - first);
  const uint64_t* block = source.keys + first;
  if (shared_block) {
    for (int64_t i = threadIdx.x; i < length; i += kQueryThreads) shared_keys[i] = block[i];
    __syncthreads();
    block = shared_keys;
  }
  const Segment segment(outputs, chunk, static_cast<int>(piece.segment));
  for (int64_t query = piece.begin + threadIdx.x; query < piece.end; query += kQueryThreads) {
    const int64_t position = LowerBound(block, 0, length, segment.Key(query));
    if constexpr (std::is_same_v<Writer, OffsetTableWriter>) {
      const bool found = position < length && segment.Matches(query, block[position]);
      writer.Write(outputs.RowAt(query), segment.k, found ? source.RowAt(first + position) : -1);
    } else {
      // No query of the piece is above the block's last key.
      segment.Emit(source, outputs, query, block[position], first + position, writer);
    }
  }
}

template <typename Writer>
absl::Status SearchBlocks(const SortedSearchCuda& search, const SortedKeysCuda& outputs,
                          const SourceBlocks& shape, const OffsetChunk& chunk, const Writer& writer,
                          const ExecutionContext& context) {
  const SortedKeysView source_view(search.source), outputs_view(outputs);
  const int64_t count = chunk.count * shape.blocks;
  // Every source block of every segment may have one that is not full.
  const int64_t most = count + chunk.count * (outputs.size() / shape.query_block);
  if (most > INT32_MAX) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "source_block=", shape.size, " query_block=", shape.query_block, ": up to ", most,
        " query blocks for ", chunk.count, " offsets; at most ", INT32_MAX, " are allowed"));
  }
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> ends, AllocateArray<int32_t>(count, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> pieces, AllocateArray<int32_t>(count, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int64_t> first_piece, AllocateArray<int64_t>(count, context));
  dim3 grid = GridFor(shape.blocks, kThreads);
  grid.y = chunk.count;
  VOXCONV_LAUNCH(BackwardKernel, grid, kThreads, 0, context, source_view, outputs_view, chunk,
                 shape, ends.data(), pieces.data());
  VOXCONV_RETURN_IF_ERROR(ExclusiveSum(pieces.data(), first_piece.data(), count, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> owners, AllocateArray<int32_t>(most + 1, context));
  int32_t* const num_pieces = owners.data() + most;
  VOXCONV_LAUNCH(OwnerKernel, GridFor(count * 32, kThreads), kThreads, 0, context, count,
                 first_piece.data(), pieces.data(), owners.data(), num_pieces);
  const bool shared = shape.size <= kMaxSharedKeys;
  VOXCONV_LAUNCH(ForwardKernel<Writer>, dim3(static_cast<unsigned>(most)), kQueryThreads,
                 shared ? shape.size * sizeof(uint64_t) : 0, context, source_view, outputs_view,
                 chunk, shape, first_piece.data(), owners.data(), num_pieces, ends.data(), shared,
                 writer);
  return absl::OkStatus();
}

// Allocates and clears the table, and calls `run` for all probed offsets, chunk by chunk.
template <typename Run>
absl::StatusOr<KernelMap> SearchChunks(const SortedSearchCuda& search,
                                       const ExecutionContext& context, const Run& run) {
  const MapProblem& problem = search.problem;
  const int64_t rows = problem.outputs.size();
  VOXCONV_ASSIGN_OR_RETURN(NeighbourArrays arrays, AllocateNeighbours(problem, context));
  const TableWriter writer(problem, arrays, search.symmetric);
  VOXCONV_RETURN_IF_ERROR(ClearTable(writer, rows, context));
  const int probed = NumProbed(problem, search.symmetric);
  for (int first = 0; first < probed && rows > 0; first += OffsetChunk::kMax) {
    VOXCONV_RETURN_IF_ERROR(run(MakeOffsetChunk(problem, first, probed), writer));
  }
  if (Counters* counters = context.counters()) counters->queries += probed * rows;
  return MakeNeighbourMap(problem, std::move(arrays));
}

}  // namespace

absl::Status ClearTable(const TableWriter& writer, int64_t rows, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(context.backend->FillBytes(
      writer.table, 0xff, rows * writer.num_offsets * sizeof(int32_t), *context.stream));
  VOXCONV_RETURN_IF_ERROR(context.backend->FillBytes(
      writer.masks, 0, rows * writer.words * sizeof(uint32_t), *context.stream));
  if (!writer.symmetric) return absl::OkStatus();
  VOXCONV_LAUNCH(CentreKernel, GridFor(rows, kThreads), kThreads, 0, context, writer, rows);
  return absl::OkStatus();
}

absl::StatusOr<KernelMap> NaiveSearch(const SortedSearchCuda& search,
                                      const ExecutionContext& context) {
  return QueryNeighbours(BinarySearch{SortedKeysView(search.source)}, search.problem,
                         search.symmetric, context);
}

absl::StatusOr<KernelMap> SegmentedSearch(const SortedSearchCuda& search,
                                          const SortedKeysCuda& outputs,
                                          const ExecutionContext& context) {
  return SearchChunks(
      search, context, [&](const OffsetChunk& chunk, const TableWriter& writer) -> absl::Status {
        dim3 grid = GridFor(outputs.size(), kThreads);
        grid.y = chunk.count;
        VOXCONV_LAUNCH(SegmentKernel, grid, kThreads, 0, context, SortedKeysView(search.source),
                       SortedKeysView(outputs), chunk, writer);
        return absl::OkStatus();
      });
}

absl::StatusOr<KernelMap> DoubleTraversedSearch(const SortedSearchCuda& search,
                                                const SortedKeysCuda& outputs, int64_t source_block,
                                                int64_t query_block,
                                                const ExecutionContext& context) {
  const SourceBlocks shape{source_block, CeilDiv(search.source.size(), source_block), query_block,
                           /*all_queries=*/false};
  return SearchChunks(search, context,
                      [&](const OffsetChunk& chunk, const TableWriter& writer) -> absl::Status {
                        if (shape.blocks == 0) return absl::OkStatus();
                        return SearchBlocks(search, outputs, shape, chunk, writer, context);
                      });
}

absl::StatusOr<KernelMap> OffsetMajorSearch(const SortedSearchCuda& search,
                                            const SortedKeysCuda& outputs, int64_t source_block,
                                            int64_t query_block, const ExecutionContext& context) {
  VOXCONV_CHECK(!search.symmetric);
  const MapProblem& problem = search.problem;
  const int64_t rows = problem.outputs.size();
  const int num_offsets = problem.geometry.num_offsets();
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table, AllocateTable(rows, num_offsets, context));
  const SourceBlocks shape{source_block, CeilDiv(search.source.size(), source_block), query_block,
                           /*all_queries=*/true};
  if (shape.blocks == 0) {
    VOXCONV_RETURN_IF_ERROR(
        context.backend->FillBytes(table.data(), 0xff, table.bytes(), *context.stream));
  }
  for (int first = 0; first < num_offsets && rows > 0 && shape.blocks > 0;
       first += OffsetChunk::kMax) {
    const OffsetChunk chunk = MakeOffsetChunk(problem, first, num_offsets);
    VOXCONV_RETURN_IF_ERROR(SearchBlocks(search, outputs, shape, chunk,
                                         OffsetTableWriter{table.data(), rows}, context));
  }
  if (Counters* counters = context.counters()) counters->queries += num_offsets * rows;
  return PairsOfOffsetTable(problem, table, context);
}

}  // namespace voxconv
