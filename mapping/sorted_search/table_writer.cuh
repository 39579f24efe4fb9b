// SPDX-License-Identifier: Apache-2.0
// How a search writes pairs to the neighbour table in any order.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_TABLE_WRITER_CUH_
#define VOXCONV_MAPPING_SORTED_SEARCH_TABLE_WRITER_CUH_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/backends/cuda/neighbour_query.cuh"
#include "voxconv/core/mapping.h"

namespace voxconv {

// The kernel offsets of one launch. They fit in a kernel's parameters.
struct OffsetChunk {
  static constexpr int kMax = 128;

  int first = 0;
  int count = 0;
  bool checked = false;  // whether row + offset may leave the coordinate range
  Int3 offset[kMax];     // of first, first + 1, ...
};

inline OffsetChunk MakeOffsetChunk(const MapProblem& problem, int first, int end) {
  const auto offsets = problem.geometry.input_offsets();
  OffsetChunk chunk;
  chunk.first = first;
  chunk.count = std::min(OffsetChunk::kMax, end - first);
  chunk.checked = !problem.outputs.StaysInRange(offsets);
  std::copy_n(offsets.begin() + first, chunk.count, chunk.offset);
  return chunk;
}

// The number of offsets that a search probes. It is all of them, or those below the centre, whose
// mirrors are the others.
inline int NumProbed(const MapProblem& problem, bool symmetric) {
  const int num_offsets = problem.geometry.num_offsets();
  return symmetric ? num_offsets / 2 : num_offsets;
}

// Writes pairs to a cleared table, which holds only the centre's pairs if it is symmetric. Each
// other cell is written at most once, so that the result does not depend on the order. The arrays
// lie in device memory.
struct TableWriter {
  int32_t* table;   // [N_out, K]
  uint32_t* masks;  // [N_out, words]
  int num_offsets;
  int words;
  bool symmetric;

  TableWriter(const MapProblem& problem, NeighbourArrays& arrays, bool symmetric)
      : table(arrays.table.data()),
        masks(arrays.masks.data()),
        num_offsets(problem.geometry.num_offsets()),
        words(static_cast<int>(CeilDiv(num_offsets, 32))),
        symmetric(symmetric) {}

  __device__ void Write(int32_t out, int k, int32_t in) const {
    WriteOne(out, k, in);
    if (symmetric) WriteOne(in, num_offsets - 1 - k, out);
  }

 private:
  __device__ void WriteOne(int32_t out, int k, int32_t in) const {
    table[int64_t{out} * num_offsets + k] = in;
    atomicOr(masks + int64_t{out} * words + k / 32, 1u << k % 32);
  }
};

// Clears the table of `rows` output rows, and writes the centre's pairs if it is symmetric. Queues
// its work on the context's stream.
absl::Status ClearTable(const TableWriter& writer, int64_t rows, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_TABLE_WRITER_CUH_
