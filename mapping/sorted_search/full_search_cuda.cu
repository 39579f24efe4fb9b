// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <utility>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_primitives.h"
#include "voxconv/mapping/sorted_search/sorted_keys_view.cuh"
#include "voxconv/mapping/sorted_search/sorted_search_cuda.h"
#include "voxconv/mapping/sorted_search/table_writer.cuh"

namespace voxconv {
namespace {

constexpr int kThreads = 256;

// Numbers the cells of the box of all queries, over all batches, in the order of their keys: fewer
// bits to sort than the keys have.
struct QueryCells {
  Int3 lo;
  uint64_t extent_x, extent_y, extent_z;
  uint64_t none;  // above all cells: of queries out of the coordinate range

  __device__ uint64_t Pack(const Coordinate& c) const {
    if (!InRange(Int3{c.x, c.y, c.z})) return none;
    const uint64_t x = static_cast<uint32_t>(c.x - lo.x), y = static_cast<uint32_t>(c.y - lo.y),
                   z = static_cast<uint32_t>(c.z - lo.z);
    return ((c.b * extent_x + x) * extent_y + y) * extent_z + z;
  }
  __device__ Coordinate Unpack(uint64_t cell) const {
    Coordinate c;
    c.z = static_cast<int32_t>(cell % extent_z) + lo.z;
    cell /= extent_z;
    c.y = static_cast<int32_t>(cell % extent_y) + lo.y;
    cell /= extent_y;
    c.x = static_cast<int32_t>(cell % extent_x) + lo.x;
    c.b = static_cast<int32_t>(cell / extent_x);
    return c;
  }
};

// A query is named k * N_out + row, in 64 bits only where 32 are too few: names are sorted along.
template <typename Name>
struct Queries {
  Array<uint64_t> cells;
  Array<Name> names;
  QueryCells format;
};

template <typename Name>
__global__ void __launch_bounds__(kThreads)
    QueryKernel(const Coordinate* outputs, int64_t rows, const __grid_constant__ OffsetChunk chunk,
                const QueryCells format, uint64_t* cells, Name* names) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= rows) return;
  const Int3 d = chunk.offset[blockIdx.y];
  const Coordinate q = outputs[row];
  const int64_t name = int64_t{chunk.first + static_cast<int>(blockIdx.y)} * rows + row;
  cells[name] = format.Pack({q.b, q.x + d.x, q.y + d.y, q.z + d.z});
  names[name] = static_cast<Name>(name);
}

template <typename Name>
__global__ void __launch_bounds__(kThreads)
    SearchKernel(const SortedKeysView source, const uint64_t* cells, const Name* names,
                 int64_t size, int64_t rows, const QueryCells format, const TableWriter writer) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= size) return;
  if (cells[i] == format.none) return;
  const uint64_t key = SearchKey(format.Unpack(cells[i]));
  const int64_t found = LowerBound(source.keys, 0, source.size, key);
  if (source.keys[found] != key) return;
  const int64_t k = names[i] / rows;
  writer.Write(static_cast<int32_t>(names[i] - k * rows), static_cast<int>(k), source.RowAt(found));
}

QueryCells CellsOf(const MapProblem& problem) {
  const Box& box = problem.outputs.bounds();
  Int3 lo{0, 0, 0}, hi{0, 0, 0};  // of the offsets, then of the queries
  for (const Int3& d : problem.geometry.input_offsets()) {
    for (int axis = 0; axis < 3; ++axis) {
      lo[axis] = std::min(lo[axis], d[axis]);
      hi[axis] = std::max(hi[axis], d[axis]);
    }
  }
  for (int axis = 0; axis < 3; ++axis) {
    lo[axis] = std::max(box.lo[axis] + lo[axis], kMinCoordinate);
    hi[axis] = std::min(box.hi[axis] + hi[axis], kMaxCoordinate);
  }
  const auto extent = [&](int axis) { return static_cast<uint64_t>(hi[axis] - lo[axis] + 1); };
  QueryCells cells{lo, extent(0), extent(1), extent(2)};
  cells.none = problem.outputs.num_batches() * extent(0) * extent(1) * extent(2);  // 2^63 at most
  return cells;
}

template <typename Name>
absl::StatusOr<Queries<Name>> SortedQueries(const MapProblem& problem, int probed,
                                            const ExecutionContext& context) {
  const StageScope stage(context, Stage::kIndexBuild);
  const int64_t rows = problem.outputs.size();
  const int64_t size = probed * rows;
  Queries<Name> queries;
  queries.format = CellsOf(problem);
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> cells, AllocateArray<uint64_t>(size, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<Name> names, AllocateArray<Name>(size, context));
  VOXCONV_ASSIGN_OR_RETURN(queries.cells, AllocateArray<uint64_t>(size, context));
  VOXCONV_ASSIGN_OR_RETURN(queries.names, AllocateArray<Name>(size, context));
  for (int first = 0; first < probed; first += OffsetChunk::kMax) {
    const OffsetChunk chunk = MakeOffsetChunk(problem, first, probed);
    dim3 grid = GridFor(rows, kThreads);
    grid.y = chunk.count;
    VOXCONV_LAUNCH(QueryKernel<Name>, grid, kThreads, 0, context, problem.outputs.rows().data(),
                   rows, chunk, queries.format, cells.data(), names.data());
  }
  VOXCONV_RETURN_IF_ERROR(SortByKey(cells.data(), queries.cells.data(), names.data(),
                                    queries.names.data(), size, std::bit_width(queries.format.none),
                                    context));
  return queries;
}

template <typename Name>
absl::StatusOr<KernelMap> SortAndSearch(const SortedSearchCuda& search, int probed,
                                        const ExecutionContext& context) {
  const MapProblem& problem = search.problem;
  const int64_t rows = problem.outputs.size();
  VOXCONV_ASSIGN_OR_RETURN(Queries<Name> queries, SortedQueries<Name>(problem, probed, context));

  VOXCONV_ASSIGN_OR_RETURN(NeighbourArrays arrays, AllocateNeighbours(problem, context));
  const TableWriter writer(problem, arrays, search.symmetric);
  VOXCONV_RETURN_IF_ERROR(ClearTable(writer, rows, context));
  VOXCONV_LAUNCH(SearchKernel<Name>, GridFor(probed * rows, kThreads), kThreads, 0, context,
                 SortedKeysView(search.source), queries.cells.data(), queries.names.data(),
                 probed * rows, rows, queries.format, writer);
  if (Counters* counters = context.counters()) counters->queries += probed * rows;
  return MakeNeighbourMap(problem, std::move(arrays));
}

}  // namespace

absl::StatusOr<KernelMap> FullSearch(const SortedSearchCuda& search,
                                     const ExecutionContext& context, int64_t most_narrow) {
  const int probed = NumProbed(search.problem, search.symmetric);
  return probed * search.problem.outputs.size() <= most_narrow
             ? SortAndSearch<int32_t>(search, probed, context)
             : SortAndSearch<int64_t>(search, probed, context);
}

}  // namespace voxconv
