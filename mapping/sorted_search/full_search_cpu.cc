// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/sorted_search/full_search_cpu.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cpu/pair_collector.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/backends/cpu/radix_sort.h"

namespace voxconv {
namespace {

constexpr int64_t kQueriesPerTask = 16384;

// A query is named k * N_out + row.
struct Queries {
  Array<uint64_t> keys;
  Array<int32_t> names;
};

// A query out of range is given kEndKey, which no search finds.
absl::StatusOr<Queries> SortedQueries(const MapProblem& problem, int probed,
                                      const ExecutionContext& context) {
  const StageScope stage(context, Stage::kIndexBuild);
  const int64_t rows = problem.outputs.size();
  if (probed * rows > INT32_MAX) {
    return absl::ResourceExhaustedError(
        absl::StrCat("variant full: ", probed, " offsets x ", rows, " output rows are ",
                     probed * rows, " queries to sort; at most ", INT32_MAX, " are allowed"));
  }
  Queries queries;
  VOXCONV_ASSIGN_OR_RETURN(queries.keys, AllocateArray<uint64_t>(probed * rows, context));
  VOXCONV_ASSIGN_OR_RETURN(queries.names, AllocateArray<int32_t>(probed * rows, context));
  const Coordinate* coordinates = problem.outputs.rows().data();
  for (int k = 0; k < probed; ++k) {
    const Int3& offset = problem.geometry.InputOffset(k);
    const bool in_range = problem.outputs.StaysInRange({&offset, 1});
    ParallelRanges(context, rows, kQueriesPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const Coordinate& q = coordinates[row];
        const bool valid =
            in_range || InRange(Int3{q.x + offset.x, q.y + offset.y, q.z + offset.z});
        queries.keys.data()[k * rows + row] = valid ? SearchKey(q) + KeyDelta(offset) : kEndKey;
        queries.names.data()[k * rows + row] = static_cast<int32_t>(k * rows + row);
      }
    });
  }
  VOXCONV_RETURN_IF_ERROR(RadixSort(queries.keys, queries.names, context));
  return queries;
}

}  // namespace

absl::StatusOr<KernelMap> FullSearch(const SortedSearch& search, const ExecutionContext& context) {
  const MapProblem& problem = search.problem;
  const int64_t rows = problem.outputs.size();
  const int num_offsets = problem.geometry.num_offsets();
  const int probed = NumProbedOffsets(problem.geometry, search.symmetric);
  VOXCONV_ASSIGN_OR_RETURN(Queries queries, SortedQueries(problem, probed, context));

  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> columns,
                           AllocateArray<int32_t>(num_offsets * rows, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(columns.data(), 0xff, columns.bytes(), *context.stream));
  int32_t* column = columns.data();
  const uint64_t* source = search.source.keys.data();
  const int64_t source_size = search.source.size();
  ParallelRanges(context, probed * rows, kQueriesPerTask, [&](int64_t begin, int64_t end) {
    const uint64_t* keys = queries.keys.data();
    int64_t position = LowerBound(source, 0, source_size, keys[begin]);
    for (int64_t i = begin; i < end && keys[i] != kEndKey; ++i) {
      if (source[position] < keys[i]) position = Gallop(source, position, source_size, keys[i]);
      if (source[position] != keys[i]) continue;
      const int64_t name = queries.names.data()[i];
      const int32_t in = search.source.RowAt(position);
      column[name] = in;
      if (!search.symmetric) continue;
      // Entry (K-1-k, in) is written by no other query: p - d is one voxel.
      column[(num_offsets - 1 - name / rows) * rows + in] = static_cast<int32_t>(name % rows);
    }
  });
  if (search.symmetric) {
    ParallelRanges(context, rows, kQueriesPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        column[probed * rows + row] = static_cast<int32_t>(row);
      }
    });
  }
  if (Counters* counters = context.counters()) counters->queries += probed * rows;
  return CompactColumns(problem, columns, context);
}

}  // namespace voxconv
