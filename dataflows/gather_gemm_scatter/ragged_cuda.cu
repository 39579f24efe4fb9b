// SPDX-License-Identifier: Apache-2.0
// One launch multiplies the rows of all offsets, each by its own matrix. A block has kRaggedRows
// rows of one offset and kColumns columns.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include <algorithm>
#include <type_traits>

#include "voxconv/backends/cuda/cuda_backend.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/backends/cuda/last_not_above.cuh"
#include "voxconv/dataflows/gather_gemm_scatter/ragged_cuda.h"

namespace voxconv {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = static_cast<int>(kRaggedRows);
constexpr int kColumns = 64;

// Which rows and which matrix a block has.
struct BlockRows {
  int64_t begin, end;  // of the buffers
  int32_t offset;

  __device__ explicit BlockRows(const RaggedSegments& segments) {
    const auto block = static_cast<int32_t>(blockIdx.x);
    const int i = LastNotAbove(segments.first_block, segments.count, block);
    begin = segments.begin[i] + int64_t{block - segments.first_block[i]} * kRows;
    end = min(segments.end[i], begin + kRows);
    offset = segments.offset[i];
  }
};

template <typename T>
struct Matrices {
  const T* rows;     // [buffer rows, c_in]
  const T* weights;  // [K, c_in, c_out]
  T* products;       // [buffer rows, c_out]
  int64_t c_in, c_out;
};

// Elements [i, i + V) of a row of `size` elements; zeros past its end, and where there is no row.
template <int V, typename T>
__device__ __forceinline__ Pack<T, V> LoadPack(const T* row, int64_t i, int64_t size, bool exists) {
  Pack<T, V> pack{};
  if (exists && i < size) pack = *reinterpret_cast<const Pack<T, V>*>(row + i);
  return pack;
}

// Calls put(row, column, element) for a tile of a row-major matrix of `columns` columns: kTileRows
// rows from first_row on, and kTileColumns columns from first_column on. Rows from end_row on, and
// columns past the last, are zeros. All threads of the block share the tile.
template <int kTileRows, int kTileColumns, int V, typename T, typename Put>
__device__ __forceinline__ void LoadTile(const T* matrix, int64_t columns, int64_t first_row,
                                         int64_t end_row, int64_t first_column, const Put& put) {
  constexpr int kPacks = kTileColumns / V;
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kPacks; i += kThreads) {
    const int row = i / kPacks, column = i % kPacks * V;
    const Pack<T, V> pack = LoadPack<V>(matrix + (first_row + row) * columns, first_column + column,
                                        columns, first_row + row < end_row);
#pragma unroll
    for (int v = 0; v < V; ++v) put(row, column + v, pack.v[v]);
  }
}

// Products by fused multiply-adds. A thread has 8 rows and 4 columns.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    RaggedFma(const __grid_constant__ RaggedSegments segments, const Matrices<T> matrices) {
  constexpr int kDepth = 16;
  __shared__ __align__(16) float a[kDepth][kRows + 4];
  __shared__ __align__(16) float b[kDepth][kColumns];
  const BlockRows rows(segments);
  const int64_t first_column = int64_t{blockIdx.y} * kColumns;
  const T* weights = matrices.weights + rows.offset * matrices.c_in * matrices.c_out;
  const int row = static_cast<int>(threadIdx.x) / 16 * 8;
  const int column = static_cast<int>(threadIdx.x) % 16 * 4;
  float sum[8][4] = {};
  for (int64_t depth = 0; depth < matrices.c_in; depth += kDepth) {
    LoadTile<kRows, kDepth, V>(matrices.rows, matrices.c_in, rows.begin, rows.end, depth,
                               [&](int r, int d, T x) { a[d][r] = Widen(x); });
    LoadTile<kDepth, kColumns, V>(weights, matrices.c_out, depth, matrices.c_in, first_column,
                                  [&](int d, int c, T x) { b[d][c] = Widen(x); });
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      float left[8], right[4];
      *reinterpret_cast<float4*>(&left[0]) = *reinterpret_cast<const float4*>(&a[d][row]);
      *reinterpret_cast<float4*>(&left[4]) = *reinterpret_cast<const float4*>(&a[d][row + 4]);
      *reinterpret_cast<float4*>(&right[0]) = *reinterpret_cast<const float4*>(&b[d][column]);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(left[i], right[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 8; ++i) {
    const int64_t to = rows.begin + row + i;
    if (to >= rows.end) break;
    for (int j = 0; j < 4; ++j) {
      const int64_t c = first_column + column + j;
      if (c < matrices.c_out) matrices.products[to * matrices.c_out + c] = Narrow<T>(sum[i][j]);
    }
  }
}

// The fragment's element type of stored elements T, and its depth. Floats are rounded to tf32.
template <typename T>
struct Fragment {
  using Element = T;
  static constexpr int kDepth = 16;
};
template <>
struct Fragment<float> {
  using Element = nvcuda::wmma::precision::tf32;
  static constexpr int kDepth = 8;
};

// Products by tensor cores. Warps are 4 x 2, and have 32 rows and 32 columns each.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    RaggedMma(const __grid_constant__ RaggedSegments segments, const Matrices<T> matrices) {
#if __CUDA_ARCH__ >= 800
  namespace wmma = nvcuda::wmma;
  constexpr int kStep = 32;
  constexpr int kPad = 16 / sizeof(T);
  constexpr int kStrideA = kStep + kPad, kStrideB = kColumns + kPad, kStrideC = kColumns + 4;
  constexpr int kDepth = Fragment<T>::kDepth;
  constexpr size_t kInputBytes = (kRows * kStrideA + kStep * kStrideB) * sizeof(T);
  constexpr size_t kResultBytes = kRows * kStrideC * sizeof(float);
  constexpr size_t kBytes = kInputBytes > kResultBytes ? kInputBytes : kResultBytes;
  __shared__ __align__(32) char memory[kBytes];
  T* const a = reinterpret_cast<T*>(memory);
  T* const b = a + kRows * kStrideA;
  float* const c = reinterpret_cast<float*>(memory);  // once a and b are not needed any more
  const BlockRows rows(segments);
  const int64_t first_column = int64_t{blockIdx.y} * kColumns;
  const T* weights = matrices.weights + rows.offset * matrices.c_in * matrices.c_out;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 / 2 * 32;
  const int warp_column = static_cast<int>(threadIdx.x) / 32 % 2 * 32;
  wmma::fragment<wmma::accumulator, 16, 16, kDepth, float> sum[2][2];
  for (auto& line : sum) {
    for (auto& each : line) wmma::fill_fragment(each, 0.0f);
  }
  const auto stored = [](T value) {
    if constexpr (std::is_same_v<T, float>) return wmma::__float_to_tf32(value);
    return value;
  };
  for (int64_t depth = 0; depth < matrices.c_in; depth += kStep) {
    LoadTile<kRows, kStep, V>(matrices.rows, matrices.c_in, rows.begin, rows.end, depth,
                              [&](int r, int d, T x) { a[r * kStrideA + d] = stored(x); });
    LoadTile<kStep, kColumns, V>(weights, matrices.c_out, depth, matrices.c_in, first_column,
                                 [&](int d, int c, T x) { b[d * kStrideB + c] = stored(x); });
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kStep; d += kDepth) {
      using Element = typename Fragment<T>::Element;
      wmma::fragment<wmma::matrix_a, 16, 16, kDepth, Element, wmma::row_major> left[2];
      wmma::fragment<wmma::matrix_b, 16, 16, kDepth, Element, wmma::row_major> right[2];
      for (int i = 0; i < 2; ++i) {
        wmma::load_matrix_sync(left[i], a + (warp_row + 16 * i) * kStrideA + d, kStrideA);
        wmma::load_matrix_sync(right[i], b + d * kStrideB + warp_column + 16 * i, kStrideB);
      }
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) wmma::mma_sync(sum[i][j], left[i], right[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      wmma::store_matrix_sync(c + (warp_row + 16 * i) * kStrideC + warp_column + 16 * j, sum[i][j],
                              kStrideC, wmma::mem_row_major);
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kColumns / V; i += kThreads) {
    const int r = i / (kColumns / V), column = i % (kColumns / V) * V;
    if (rows.begin + r >= rows.end || first_column + column >= matrices.c_out) continue;
    Pack<T, V> pack;
#pragma unroll
    for (int v = 0; v < V; ++v) pack.v[v] = Narrow<T>(c[r * kStrideC + column + v]);
    *reinterpret_cast<Pack<T, V>*>(matrices.products + (rows.begin + r) * matrices.c_out +
                                   first_column + column) = pack;
  }
#else
  (void)segments;
  (void)matrices;
#endif
}

template <typename T, int V>
absl::Status Launch(const RaggedSegments& segments, const RaggedOperands& operands,
                    const ExecutionContext& context) {
  const Matrices<T> matrices{static_cast<const T*>(operands.rows),
                             static_cast<const T*>(operands.weights),
                             static_cast<T*>(operands.products), operands.c_in, operands.c_out};
  const dim3 grid(static_cast<unsigned>(segments.first_block[segments.count]),
                  static_cast<unsigned>(CeilDiv(operands.c_out, kColumns)));
  const bool tensor_cores =
      operands.precision != Precision::kF32 && AsCuda(context).compute_capability() >= 80;
  auto* const kernel = tensor_cores ? &RaggedMma<T, V> : &RaggedFma<T, V>;
  VOXCONV_LAUNCH(kernel, grid, kThreads, 0, context, segments, matrices);
  return absl::OkStatus();
}

}  // namespace

absl::Status RaggedProductCuda(const RaggedSegments& segments, const RaggedOperands& operands,
                               const ExecutionContext& context) {
  const int64_t both = operands.c_in | operands.c_out;
  return WithStoredType(StorageOf(operands.precision), [&]<typename T>() {
    const bool wide = both % 4 == 0 &&
                      Aligned({operands.rows, operands.weights, operands.products}, 4 * sizeof(T));
    return wide ? Launch<T, 4>(segments, operands, context)
                : Launch<T, 1>(segments, operands, context);
  });
}

}  // namespace voxconv
