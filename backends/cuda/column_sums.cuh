// SPDX-License-Identifier: Apache-2.0
// Sums over the rows of a matrix whose order is fixed. A thread adds a short run of rows in f32,
// and runs in f64. Chunks of rows are added in f64 by a second kernel. Only .cu files include this
// header.
#ifndef VOXCONV_BACKENDS_CUDA_COLUMN_SUMS_CUH_
#define VOXCONV_BACKENDS_CUDA_COLUMN_SUMS_CUH_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"

namespace voxconv {

// What is summed is a Term. It is copied to the device, and has
//   kPack     the elements of a pack
//   kSums     the sums of each column
//   kRun      the rows of a run
//   Row       what is loaded of one row: a pack of each operand
//   Columns   what belongs to the columns of a pack; made from the term and the number of the pack,
//             where there are rows
//     Load(at)               the Row of pack `at`, counted over all rows
//     Add(run, count, sums)  adds the first `count` rows of a run to sums[kSums][kPack], f64

inline constexpr int kColumnThreads = 256;

// The first kernel's blocks have threadIdx.x for packs, and threadIdx.y for rows. Rows are cut into
// chunks, and packs into tiles. Both depend on the shape alone, so that sums are the same on every
// device.
struct ColumnLaunch {
  dim3 block;
  int64_t tiles, chunks, rows_per_chunk;

  ColumnLaunch(int64_t rows, int64_t packs, int run) {
    constexpr int64_t kMostPacks = 64;  // of a tile
    constexpr int64_t kBlocks = 264;    // two for each multiprocessor of an H100, all at once
    constexpr int64_t kLeastRows = 64;  // so that partial sums stay small beside the matrix
    tiles = CeilDiv(packs, kMostPacks);
    const int64_t tile = CeilDiv(std::max<int64_t>(packs, 1), std::max<int64_t>(tiles, 1));
    block = dim3(static_cast<unsigned>(tile), static_cast<unsigned>(kColumnThreads / tile));
    const int64_t most_chunks = std::max<int64_t>(1, kBlocks / std::max<int64_t>(tiles, 1));
    const int64_t least_rows = std::max(kLeastRows, int64_t{block.y} * run);
    rows_per_chunk = std::max(least_rows, CeilDiv(rows, most_chunks));
    chunks = packs == 0 ? 0 : CeilDiv(rows, rows_per_chunk);
  }
};

// partial[(chunk * kSums + sum) * channels + c]. Grid: tiles * chunks.
template <typename Term>
__global__ void __launch_bounds__(kColumnThreads, 2)
    SumChunks(Term term, int64_t rows, int64_t packs, int64_t chunks, int64_t rows_per_chunk,
              double* partial) {
  constexpr int V = Term::kPack, kSums = Term::kSums, kRun = Term::kRun;
  __shared__ double shared[kSums * V][kColumnThreads];
  OverlapLaunches();
  const int64_t chunk = blockIdx.x % chunks;
  const int64_t pack = blockIdx.x / chunks * blockDim.x + threadIdx.x;
  const int64_t end = min(rows, (chunk + 1) * rows_per_chunk);
  double sums[kSums][V] = {};
  if (pack < packs) {
    const typename Term::Columns columns(term, pack);
    for (int64_t row = chunk * rows_per_chunk + threadIdx.y; row < end;
         row += int64_t{kRun} * blockDim.y) {
      typename Term::Row run[kRun];
      int count = 0;
#pragma unroll
      for (int k = 0; k < kRun; ++k) {
        const int64_t r = row + int64_t{k} * blockDim.y;
        if (r >= end) continue;
        run[k] = columns.Load(r * packs + pack);
        count = k + 1;
      }
      columns.Add(run, count, sums);
    }
  }
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (int i = 0; i < kSums * V; ++i) shared[i][thread] = sums[i / V][i % V];
  for (unsigned left = blockDim.y; left > 1;) {
    const unsigned half = (left + 1) / 2;
    __syncthreads();
    if (threadIdx.y < left - half) {
      const int other = thread + static_cast<int>(half * blockDim.x);
      for (int i = 0; i < kSums * V; ++i) shared[i][thread] += shared[i][other];
    }
    left = half;
  }
  if (threadIdx.y != 0 || pack >= packs) return;
  for (int i = 0; i < kSums * V; ++i) {
    partial[((chunk * kSums + i / V) * packs + pack) * V + i % V] = shared[i][thread];
  }
}

inline constexpr int kMergedColumns = 8, kMergingThreads = 64;

// finish(c, sums) is called for every column. Block: (kMergedColumns, kMergingThreads).
template <int kSums, typename Finish>
__global__ void __launch_bounds__(kMergedColumns* kMergingThreads)
    MergeChunks(const double* partial, int64_t chunks, int64_t channels, Finish finish) {
  __shared__ double shared[kSums][kMergingThreads][kMergedColumns];
  OverlapLaunches();
  const int64_t c = int64_t{blockIdx.x} * kMergedColumns + threadIdx.x;
  double sums[kSums] = {};
  if (c < channels) {
    for (int64_t chunk = threadIdx.y; chunk < chunks; chunk += kMergingThreads) {
      for (int i = 0; i < kSums; ++i) sums[i] += partial[(chunk * kSums + i) * channels + c];
    }
  }
  for (int i = 0; i < kSums; ++i) shared[i][threadIdx.y][threadIdx.x] = sums[i];
  for (unsigned half = kMergingThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y >= half) continue;
    for (int i = 0; i < kSums; ++i) {
      shared[i][threadIdx.y][threadIdx.x] += shared[i][threadIdx.y + half][threadIdx.x];
    }
  }
  if (threadIdx.y != 0 || c >= channels) return;
  for (int i = 0; i < kSums; ++i) sums[i] = shared[i][0][threadIdx.x];
  finish(c, sums);
}

// Queues both kernels for a matrix [rows, channels]. Without rows all sums are 0.
template <typename Term, typename Finish>
absl::Status SumColumns(const Term& term, const Finish& finish, int64_t rows, int64_t channels,
                        const ExecutionContext& context) {
  const int64_t packs = channels / Term::kPack;
  const ColumnLaunch launch(rows, packs, Term::kRun);
  VOXCONV_ASSIGN_OR_RETURN(Array<double> partial,
                           AllocateArray<double>(launch.chunks * Term::kSums * channels, context));
  VOXCONV_LAUNCH_EARLY(SumChunks<Term>, dim3(static_cast<unsigned>(launch.tiles * launch.chunks)),
                       launch.block, 0, context, term, rows, packs, launch.chunks,
                       launch.rows_per_chunk, partial.data());
  VOXCONV_LAUNCH_EARLY((MergeChunks<Term::kSums, Finish>), GridFor(channels, kMergedColumns),
                       dim3(kMergedColumns, kMergingThreads), 0, context, partial.data(),
                       launch.chunks, channels, finish);
  return absl::OkStatus();
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_COLUMN_SUMS_CUH_
