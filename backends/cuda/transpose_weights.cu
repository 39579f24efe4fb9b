// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/backends/cuda/tensor_core.cuh"
#include "voxconv/backends/cuda/transpose_weights.h"

namespace voxconv {
namespace {

constexpr int kTile = 32;     // rows and columns of a block's tile
constexpr int kTileRows = 8;  // rows of a tile that a block moves at a time
constexpr int kThreads = kTile * kTileRows;

// [K] matrices of [rows, columns], cut into tiles. They become [columns, padded_rows].
struct Matrices {
  int64_t rows, columns;
  int64_t padded_rows;
  int64_t row_tiles, column_tiles;  // of one matrix
  int num_matrices;
  bool remainders = false;  // of the rounding; behind the matrices
  bool reversed = false;

  int64_t tiles() const { return num_matrices * row_tiles * column_tiles * (remainders ? 2 : 1); }
};

template <typename Unit>
__device__ __forceinline__ Unit Converted(Unit bits, const Matrices&, bool) {
  return bits;
}
template <>
__device__ __forceinline__ float Converted(float value, const Matrices& m, bool remainder) {
  const uint32_t bits = __float_as_uint(value);
  return __uint_as_float(m.remainders ? SplitRightToTf32(bits, remainder) : RoundToTf32(bits));
}

// A block transposes a tile through shared memory, so that it reads and writes whole lines. Moves
// the bits of integers, whatever they mean, and rounds floats to tf32.
template <typename Unit>
__global__ void __launch_bounds__(kThreads)
    TransposeTiles(const Unit* weights, const Matrices m, Unit* transposed) {
  // The rows of a tile are an odd number of words apart: a column lies in different banks.
  __shared__ Unit tile[kTile][kTile + sizeof(uint32_t) / sizeof(Unit)];
  OverlapLaunches();
  const int64_t block = blockIdx.x;
  const int64_t number = block / (m.row_tiles * m.column_tiles);
  const bool remainder = number >= m.num_matrices;
  const int64_t matrix = remainder ? number - m.num_matrices : number;
  const int64_t first_row = block / m.column_tiles % m.row_tiles * kTile;
  const int64_t first_column = block % m.column_tiles * kTile;
  const Unit* const from = weights + matrix * m.rows * m.columns;
  const int64_t target = m.reversed ? m.num_matrices - 1 - matrix : number;
  Unit* const to = transposed + target * m.padded_rows * m.columns;
  for (int i = threadIdx.y; i < kTile; i += kTileRows) {
    const int64_t row = first_row + i, column = first_column + threadIdx.x;
    const bool inside = row < m.rows && column < m.columns;
    tile[i][threadIdx.x] = inside ? from[row * m.columns + column] : Unit{0};
  }
  __syncthreads();
  for (int i = threadIdx.y; i < kTile; i += kTileRows) {
    const int64_t row = first_row + threadIdx.x, column = first_column + i;
    if (row < m.padded_rows && column < m.columns) {
      to[column * m.padded_rows + row] = Converted(tile[threadIdx.x][i], m, remainder);
    }
  }
}

template <typename Unit>
absl::Status Transpose(const void* weights, const Matrices& matrices, void* transposed,
                       const ExecutionContext& context) {
  VOXCONV_LAUNCH_EARLY(TransposeTiles<Unit>, dim3(static_cast<unsigned>(matrices.tiles())),
                       dim3(kTile, kTileRows), 0, context, static_cast<const Unit*>(weights),
                       matrices, static_cast<Unit*>(transposed));
  return absl::OkStatus();
}

Matrices MatricesOf(int num_offsets, int64_t rows, int64_t columns, int64_t padded_rows) {
  return {.rows = rows,
          .columns = columns,
          .padded_rows = padded_rows,
          .row_tiles = CeilDiv(padded_rows, kTile),
          .column_tiles = CeilDiv(columns, kTile),
          .num_matrices = num_offsets};
}

}  // namespace

absl::Status CudaTransposeWeights(const ConstTensorView& weights, int num_offsets, bool reversed,
                                  const TensorView& transposed, const ExecutionContext& context) {
  if (weights.rows == 0 || weights.channels == 0) return absl::OkStatus();
  const int64_t rows = weights.rows / num_offsets;
  Matrices matrices = MatricesOf(num_offsets, rows, weights.channels, rows);
  matrices.reversed = reversed;
  return SizeOf(weights.dtype) == 2
             ? Transpose<uint16_t>(weights.data, matrices, transposed.data, context)
             : Transpose<uint32_t>(weights.data, matrices, transposed.data, context);
}

absl::Status CudaTransposeToTf32(const float* weights, int num_offsets, int64_t rows,
                                 int64_t columns, int64_t padded_rows, bool remainders,
                                 float* transposed, const ExecutionContext& context) {
  if (num_offsets == 0 || rows == 0 || columns == 0) return absl::OkStatus();
  Matrices matrices = MatricesOf(num_offsets, rows, columns, padded_rows);
  matrices.remainders = remainders;
  return Transpose<float>(weights, matrices, transposed, context);
}

}  // namespace voxconv
