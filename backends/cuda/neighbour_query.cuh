// SPDX-License-Identifier: Apache-2.0
// The map query of mappings that look up one input row for each output row and kernel offset. The
// mapping brings the lookup itself. Only .cu files include this header.
#ifndef VOXCONV_BACKENDS_CUDA_NEIGHBOUR_QUERY_CUH_
#define VOXCONV_BACKENDS_CUDA_NEIGHBOUR_QUERY_CUH_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/backends/cuda/coordinate_rows.cuh"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/core/check.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/mapping.h"

namespace voxconv {

// The arrays that a map query writes, in device memory (see NeighbourTable).
struct NeighbourArrays {
  Array<int32_t> table;   // [N_out, K]
  Array<uint32_t> masks;  // [N_out, ceil(K / 32)]
};

inline absl::StatusOr<NeighbourArrays> AllocateNeighbours(const MapProblem& problem,
                                                          const ExecutionContext& context) {
  const int64_t rows = problem.outputs.size();
  const int64_t num_offsets = problem.geometry.num_offsets();
  NeighbourArrays arrays;
  VOXCONV_ASSIGN_OR_RETURN(arrays.table, AllocateArray<int32_t>(rows * num_offsets, context));
  VOXCONV_ASSIGN_OR_RETURN(arrays.masks,
                           AllocateArray<uint32_t>(rows * CeilDiv(num_offsets, 32), context));
  return arrays;
}

// The map of filled arrays. Its pairs are not counted.
inline KernelMap MakeNeighbourMap(const MapProblem& problem, NeighbourArrays arrays) {
  NeighbourTable table{std::move(arrays.table), std::move(arrays.masks)};
  KernelMap map(problem.inputs.size(), problem.outputs.size(), problem.geometry.num_offsets(),
                std::move(table));
  map.set_identity_offset(problem.geometry.center());
  map.set_symmetric(problem.geometry.symmetric());
  return map;
}

namespace neighbour_query {

constexpr int kThreads = 256;
// The approximate number of lookups of one block. A thread has a few, so that they share the
// staging. There are still enough blocks to keep all multiprocessors busy to the end.
constexpr int kTileItems = 1024;
constexpr int kMaxTileRows = 256;
// The most offsets of one launch. They fit in a kernel's parameters, so that no launch waits for a
// copy. The number is a multiple of 32, so that no two launches share a word of masks.
constexpr int kMaxOffsets = 128;

struct Offsets {
  Int3 offset[kMaxOffsets];
};

struct Args {
  int64_t num_rows;
  int32_t* table;
  uint32_t* masks;      // null: none are written
  int num_offsets;      // K
  int first;            // this launch's offsets are [first, first + count)
  int count;            // at most kMaxOffsets
  int identity;         // the offset under which row q finds row q, or -1
  int tile_rows;        // output rows of a block
  uint32_t reciprocal;  // ceil(2^32 / count); unused where count is 1
  bool check_range;     // whether q + offset may leave the coordinate range
  bool symmetric;       // only offsets below the centre are probed; their pairs are mirrored
};

// A functor that looks up a key with all lanes of a warp declares kWholeWarp = true. Whole warps
// then call it, with kEmptyKey on lanes that have nothing to look up.
template <typename Lookup>
constexpr bool WholeWarp() {
  if constexpr (requires { Lookup::kWholeWarp; }) {
    return Lookup::kWholeWarp;
  } else {
    return false;
  }
}

// A block's output rows and the launch's offsets.
struct Tile {
  Coordinate rows[kMaxTileRows];
  uint64_t row_keys[kMaxTileRows];
  Int3 offset[kMaxOffsets];
  uint64_t delta[kMaxOffsets];
  // The mask words of each row for the launch's offsets: tile_rows * ceil(count / 32) words.
  uint32_t masks[kMaxTileRows];
};

template <typename Rows>
__device__ void Stage(const Args& args, const Rows& outputs, const Offsets& offsets,
                      int64_t first_row, int num_rows, Tile& tile) {
  for (int i = threadIdx.x; i < args.count; i += kThreads) {
    tile.offset[i] = offsets.offset[i];
    tile.delta[i] = KeyDelta(offsets.offset[i]);
  }
  for (int i = threadIdx.x; i < num_rows; i += kThreads) {
    tile.rows[i] = LoadRow(outputs, first_row + i);
    tile.row_keys[i] = PackKey(tile.rows[i]);
  }
  for (int i = threadIdx.x; i < kMaxTileRows; i += kThreads) tile.masks[i] = 0;
}

// Computes item / count. The result is exact for the items of a tile.
__device__ inline int RowOf(const Args& args, int item) {
  return args.count == 1 ? item : static_cast<int>(__umulhi(item, args.reciprocal));
}

template <typename Lookup>
__device__ int32_t Find(const Lookup& lookup, const Args& args, const Tile& tile, int row, int k,
                        bool wanted) {
  const Coordinate q = tile.rows[row];
  const Int3 d = tile.offset[k];
  // Both terms are below 2^18 in size, so the sums fit.
  const Coordinate position{q.b, q.x + d.x, q.y + d.y, q.z + d.z};
  wanted = wanted && (!args.check_range || InRange(Int3{position.x, position.y, position.z}));
  if constexpr (WholeWarp<Lookup>()) {
    return lookup(position, wanted ? tile.row_keys[row] + tile.delta[k] : kEmptyKey);
  } else {
    return wanted ? lookup(position, tile.row_keys[row] + tile.delta[k]) : -1;
  }
}

// Writes a pair and its mirror. Row p is the neighbour of row q under offset k, and row q is that
// of p under K-1-k. The table is cleared to -1, and every cell is written at most once. Masks are
// combined by atomic or.
__device__ inline void WriteBoth(const Args& args, int64_t q, int k, int32_t p) {
  const int mirrored = args.num_offsets - 1 - k;
  args.table[q * args.num_offsets + k] = p;
  args.table[int64_t{p} * args.num_offsets + mirrored] = static_cast<int32_t>(q);
  atomicOr(args.masks + int64_t{p} * ((args.num_offsets + 31) / 32) + mirrored / 32,
           1u << mirrored % 32);
}

__device__ inline void WriteCentre(const Args& args, int64_t first_row, int num_rows) {
  const int centre = args.num_offsets / 2;
  for (int i = threadIdx.x; i < num_rows; i += kThreads) {
    const int64_t row = first_row + i;
    args.table[row * args.num_offsets + centre] = static_cast<int32_t>(row);
    atomicOr(args.masks + row * ((args.num_offsets + 31) / 32) + centre / 32, 1u << centre % 32);
  }
}

// Neighbouring threads take neighbouring cells of the table. They thus write whole lines, even if
// there are few offsets.
template <typename Lookup, typename Rows>
__global__ void __launch_bounds__(kThreads)
    QueryKernel(const Lookup lookup, const Rows outputs, const Args args, const Offsets offsets) {
  __shared__ Tile tile;
  const int64_t first_row = int64_t{blockIdx.x} * args.tile_rows;
  const int num_rows =
      static_cast<int>(min(static_cast<int64_t>(args.tile_rows), args.num_rows - first_row));
  Stage(args, outputs, offsets, first_row, num_rows, tile);
  __syncthreads();

  const int words = (args.count + 31) / 32;
  const int items = num_rows * args.count;
  // The cells of the block's first row. The rows of a block times the offsets are below 2^31.
  int32_t* const table = args.table + first_row * args.num_offsets + args.first;
  for (int base = 0; base < items; base += kThreads) {
    const int item = base + static_cast<int>(threadIdx.x);
    const bool inside = item < items;
    const int row = inside ? RowOf(args, item) : 0;
    const int k = inside ? item - row * args.count : 0;
    const bool is_identity = args.first + k == args.identity;
    int32_t found = Find(lookup, args, tile, row, k, inside && !is_identity);
    if (!inside) continue;
    if (is_identity) found = static_cast<int32_t>(first_row + row);
    if (found >= 0) atomicOr(&tile.masks[row * words + k / 32], 1u << k % 32);
    if (!args.symmetric) {
      table[row * args.num_offsets + k] = found;
    } else if (found >= 0) {
      WriteBoth(args, first_row + row, args.first + k, found);
    }
  }
  if (args.masks == nullptr) return;
  __syncthreads();

  const int row_words = (args.num_offsets + 31) / 32;
  for (int i = threadIdx.x; i < num_rows * words; i += kThreads) {
    uint32_t* to = args.masks + (first_row + i / words) * row_words + args.first / 32 + i % words;
    if (!args.symmetric) {
      *to = tile.masks[i];
    } else if (tile.masks[i] != 0) {
      atomicOr(to, tile.masks[i]);
    }
  }
  if (args.symmetric && args.first == 0) WriteCentre(args, first_row, num_rows);
}

// Queues the launches of `args`, which lack what differs from one to the next, for the first
// `probed` offsets.
template <typename Lookup, typename Rows>
absl::Status Launch(const Lookup& lookup, const Rows& outputs, absl::Span<const Int3> all_offsets,
                    int probed, Args args, const ExecutionContext& context) {
  for (args.first = 0; args.first < probed; args.first += kMaxOffsets) {
    args.count = std::min(kMaxOffsets, probed - args.first);
    args.tile_rows = std::min(kTileItems / args.count, kMaxTileRows);
    args.reciprocal = static_cast<uint32_t>(((uint64_t{1} << 32) + args.count - 1) / args.count);
    Offsets offsets{};
    std::copy_n(all_offsets.begin() + args.first, args.count, offsets.offset);
    const auto kernel = QueryKernel<Lookup, Rows>;
    VOXCONV_LAUNCH(kernel, GridFor(args.num_rows, args.tile_rows), kThreads, 0, context, lookup,
                   outputs, args, offsets);
  }
  return absl::OkStatus();
}

}  // namespace neighbour_query

// The neighbour table and masks of `problem`, whose outputs are read from `outputs`:
// InterleavedRows or PlanarRows. `lookup` is copied to the device and called there as
//     int32_t operator()(const Coordinate& position, uint64_t key) const
// It returns the input row at a position in the coordinate range, or -1. `key` is the packed key of
// `position`. An argument that a lookup does not use costs nothing. If `symmetric` is set, only
// offsets below the centre are looked up. The centre is then the identity, and offset K-1-k is the
// transpose of k (TorchSparse 4.2.1). The geometry must then be symmetric (checked). The result is
// deterministic. This function records counters.queries. It queues one launch for every 128
// offsets, and two fills if `symmetric` is set. It does not synchronise the stream.
template <typename Lookup, typename Rows>
absl::StatusOr<KernelMap> QueryNeighbours(const Lookup& lookup, const Rows& outputs,
                                          const MapProblem& problem, bool symmetric,
                                          const ExecutionContext& context) {
  const ConvGeometry& geometry = problem.geometry;
  VOXCONV_CHECK(!symmetric || geometry.symmetric());
  const int num_offsets = geometry.num_offsets();
  symmetric = symmetric && num_offsets > 1;
  const int probed = symmetric ? num_offsets / 2 : num_offsets;
  VOXCONV_ASSIGN_OR_RETURN(NeighbourArrays arrays, AllocateNeighbours(problem, context));
  if (symmetric) {
    VOXCONV_RETURN_IF_ERROR(context.backend->FillBytes(arrays.table.data(), 0xff,
                                                       arrays.table.bytes(), *context.stream));
    VOXCONV_RETURN_IF_ERROR(
        context.backend->FillBytes(arrays.masks.data(), 0, arrays.masks.bytes(), *context.stream));
  }
  neighbour_query::Args args{};
  args.num_rows = problem.outputs.size();
  args.table = arrays.table.data();
  args.masks = arrays.masks.data();
  args.num_offsets = num_offsets;
  args.identity = geometry.center();
  args.check_range = !problem.outputs.StaysInRange(geometry.input_offsets());
  args.symmetric = symmetric;
  VOXCONV_RETURN_IF_ERROR(
      neighbour_query::Launch(lookup, outputs, geometry.input_offsets(), probed, args, context));
  if (Counters* counters = context.counters()) {
    const int looked_up = args.identity >= 0 && args.identity < probed ? probed - 1 : probed;
    counters->queries += looked_up * args.num_rows;
  }
  return MakeNeighbourMap(problem, std::move(arrays));
}

// Some rows of a neighbour table, for NeighbourLookup::Find: those of `num_rows` output rows at
// `outputs`, to table [num_rows, K]. Otherwise as QueryNeighbours. `check_range`: whether an output
// row plus an offset may leave the coordinate range.
template <typename Lookup>
absl::Status FindNeighbourRows(const Lookup& lookup, const Coordinate* outputs, int64_t num_rows,
                               absl::Span<const Int3> offsets, bool check_range, int32_t* table,
                               const ExecutionContext& context) {
  neighbour_query::Args args{};
  args.num_rows = num_rows;
  args.table = table;
  args.num_offsets = static_cast<int>(offsets.size());
  args.identity = -1;
  args.check_range = check_range;
  if (Counters* counters = context.counters()) counters->queries += num_rows * args.num_offsets;
  return neighbour_query::Launch(lookup, InterleavedRows{outputs}, offsets, args.num_offsets, args,
                                 context);
}

// As above, but reads the output rows of `problem` itself.
template <typename Lookup>
absl::StatusOr<KernelMap> QueryNeighbours(const Lookup& lookup, const MapProblem& problem,
                                          bool symmetric, const ExecutionContext& context) {
  return QueryNeighbours(lookup, InterleavedRows{problem.outputs.rows().data()}, problem, symmetric,
                         context);
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_NEIGHBOUR_QUERY_CUH_
