// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/backends/cuda/transpose_weights.h"

namespace voxconv {
namespace {

constexpr int kTile = 32;     // rows and columns of a block's tile
constexpr int kTileRows = 8;  // rows of a tile that a block moves at a time
constexpr int kThreads = kTile * kTileRows;

// [K] matrices of [rows, columns], cut into tiles.
struct Matrices {
  int64_t rows, columns;
  int64_t row_tiles, column_tiles;  // of one matrix
  int num_matrices;
  bool reversed;

  int64_t tiles() const { return num_matrices * row_tiles * column_tiles; }
};

// A block transposes a tile through shared memory, so that it reads and writes whole lines. Moves
// bits, whatever they mean.
template <typename Unit>
__global__ void __launch_bounds__(kThreads)
    TransposeTiles(const Unit* weights, const Matrices m, Unit* transposed) {
  // The rows of a tile are an odd number of words apart: a column lies in different banks.
  __shared__ Unit tile[kTile][kTile + sizeof(uint32_t) / sizeof(Unit)];
  OverlapLaunches();
  const int64_t block = blockIdx.x;
  const int64_t matrix = block / (m.row_tiles * m.column_tiles);
  const int64_t first_row = block / m.column_tiles % m.row_tiles * kTile;
  const int64_t first_column = block % m.column_tiles * kTile;
  const Unit* const from = weights + matrix * m.rows * m.columns;
  const int64_t target = m.reversed ? m.num_matrices - 1 - matrix : matrix;
  Unit* const to = transposed + target * m.rows * m.columns;
  for (int i = threadIdx.y; i < kTile; i += kTileRows) {
    const int64_t row = first_row + i, column = first_column + threadIdx.x;
    if (row < m.rows && column < m.columns) tile[i][threadIdx.x] = from[row * m.columns + column];
  }
  __syncthreads();
  for (int i = threadIdx.y; i < kTile; i += kTileRows) {
    const int64_t row = first_row + threadIdx.x, column = first_column + i;
    if (row < m.rows && column < m.columns) to[column * m.rows + row] = tile[threadIdx.x][i];
  }
}

template <typename Unit>
absl::Status Transpose(const ConstTensorView& weights, const Matrices& matrices,
                       const TensorView& transposed, const ExecutionContext& context) {
  VOXCONV_LAUNCH_EARLY(TransposeTiles<Unit>, dim3(static_cast<unsigned>(matrices.tiles())),
                       dim3(kTile, kTileRows), 0, context, static_cast<const Unit*>(weights.data),
                       matrices, static_cast<Unit*>(transposed.data));
  return absl::OkStatus();
}

}  // namespace

absl::Status CudaTransposeWeights(const ConstTensorView& weights, int num_offsets, bool reversed,
                                  const TensorView& transposed, const ExecutionContext& context) {
  if (weights.rows == 0 || weights.channels == 0) return absl::OkStatus();
  const int64_t rows = weights.rows / num_offsets;
  const Matrices matrices{.rows = rows,
                          .columns = weights.channels,
                          .row_tiles = CeilDiv(rows, kTile),
                          .column_tiles = CeilDiv(weights.channels, kTile),
                          .num_matrices = num_offsets,
                          .reversed = reversed};
  return SizeOf(weights.dtype) == 2 ? Transpose<uint16_t>(weights, matrices, transposed, context)
                                    : Transpose<uint32_t>(weights, matrices, transposed, context);
}

}  // namespace voxconv
