// SPDX-License-Identifier: Apache-2.0
// Minuet's Algorithm 1. A thread has one tile of channels of one row. It reads the row's map by
// itself, so that large tiles read the map less often and small tiles have more threads.
#include <algorithm>
#include <variant>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/cuda_vector.h"
#include "voxconv/dataflows/gather_gemm_scatter/map_rows_cuda.h"
#include "voxconv/dataflows/gather_gemm_scatter/move_cuda.h"
#include "voxconv/dataflows/gather_gemm_scatter/vector_sums.cuh"

namespace voxconv {
namespace {

// Calls visit(buffer row) for the row's pairs in the windows, by ascending offset.
template <typename Visit>
__device__ void EachPair(const DeviceDenseRows& rows, int64_t row, const WindowRange& range,
                         const Visit& visit) {
  const int32_t* positions = rows.table + row * rows.num_offsets + range.first;
  for (int s = 0; s < range.count; ++s) {
    const DeviceWindow& window = range.windows[s];
    if (window.begin == window.end) continue;
    const int32_t position = __ldg(positions + s);
    if (position < window.begin || position >= window.end) continue;  // -1 is before every window
    visit(position + window.shift);
  }
}

template <typename Visit>
__device__ void EachPair(const DeviceCodedRows& rows, int64_t row, const WindowRange& range,
                         const Visit& visit) {
  const auto scale = static_cast<uint32_t>(rows.num_offsets);
  const int64_t stop = __ldg(rows.ptr + row + 1);
  for (int64_t i = __ldg(rows.ptr + row); i < stop; ++i) {
    const uint32_t code = __ldg(rows.codes + i);
    const uint32_t position = code / scale;
    const int s = static_cast<int>(code - position * scale) - range.first;
    if (s < 0 || s >= range.count) continue;
    const DeviceWindow& window = range.windows[s];
    const auto at = static_cast<int64_t>(position);
    if (at >= window.begin && at < window.end) visit(at + window.shift);
  }
}

// Which row a thread has, and which of its vectors: v, v + shape.threads, ... That is the order of
// the other kernels too: neighbouring threads touch neighbouring addresses.
struct TileOfThread {
  int64_t row, v;

  __device__ explicit TileOfThread(const MoveShape& shape)
      : row(GlobalThread() / shape.threads), v(GlobalThread() - row * shape.threads) {}
};

template <typename Rows, typename Vector, int kVectors>
__global__ void __launch_bounds__(kMoveBlock)
    TileGatherKernel(const Rows rows, const Vector* __restrict__ input, Vector* __restrict__ buffer,
                     const MoveShape shape, const __grid_constant__ WindowRange range) {
  const TileOfThread tile(shape);
  if (tile.row >= shape.rows) return;
  const Vector* from = input + tile.row * shape.vectors;
  // A tile of more vectors than registers hold takes the map again for the rest.
  for (int64_t v = tile.v; v < shape.vectors; v += kVectors * shape.threads) {
    Vector value[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int64_t at = v + i * shape.threads;
      if (at < shape.vectors) value[i] = from[at];
    }
    EachPair(rows, tile.row, range, [&](int64_t buffer_row) {
      Vector* to = buffer + buffer_row * shape.vectors;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int64_t at = v + i * shape.threads;
        if (at < shape.vectors) to[at] = value[i];
      }
    });
  }
}

template <typename Rows, typename T, int kBytes, int kVectors>
__global__ void __launch_bounds__(kMoveBlock)
    TileScatterKernel(const Rows rows, const RawVector<kBytes>* __restrict__ partial_products,
                      const ScatterSums sums, const MoveShape shape,
                      const __grid_constant__ WindowRange range) {
  constexpr int kElements = kBytes / sizeof(T);
  using Vector = RawVector<kBytes>;
  const TileOfThread tile(shape);
  if (tile.row >= shape.rows) return;
  for (int64_t v = tile.v; v < shape.vectors; v += kVectors * shape.threads) {
    float sum[kVectors][kElements] = {};
    // body(i, vector of the output)
    const auto for_vectors = [&](const auto& body) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int64_t at = v + i * shape.threads;
        if (at < shape.vectors) body(i, tile.row * shape.vectors + at);
      }
    };
    for_vectors([&](int i, int64_t at) {
      if (sums.from_accumulator != nullptr) {
        for (int c = 0; c < kElements; ++c) sum[i][c] = sums.from_accumulator[at * kElements + c];
      } else if (sums.from_output != nullptr) {
        AddVector<T, kBytes>(static_cast<const Vector*>(sums.from_output)[at], sum[i]);
      }
    });
    EachPair(rows, tile.row, range, [&](int64_t buffer_row) {
      const Vector* from = partial_products + buffer_row * shape.vectors;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int64_t at = v + i * shape.threads;
        if (at < shape.vectors) AddVector<T, kBytes>(from[at], sum[i]);
      }
    });
    for_vectors([&](int i, int64_t at) {
      if (sums.to_accumulator != nullptr) {
        for (int c = 0; c < kElements; ++c) sums.to_accumulator[at * kElements + c] = sum[i][c];
      } else {
        PutVector<T, kBytes>(sum[i], static_cast<Vector*>(sums.to_output) + at);
      }
    });
  }
}

dim3 GridOf(const MoveShape& shape) { return GridFor(shape.rows * shape.threads, kMoveBlock); }

}  // namespace

absl::Status TileGatherCuda(const DeviceRows& rows, const void* input, void* buffer,
                            const MoveShape& shape, const WindowRange& range,
                            const ExecutionContext& context) {
  return std::visit(
      [&](const auto& layout) {
        return ForVectorBytes(shape.vector_bytes, [&](auto bytes) {
          return ForVectorsInFlight(shape, [&](auto vectors) -> absl::Status {
            using Vector = RawVector<bytes()>;
            auto* const kernel =
                &TileGatherKernel<std::decay_t<decltype(layout)>, Vector, vectors()>;
            VOXCONV_LAUNCH(kernel, GridOf(shape), kMoveBlock, 0, context, layout,
                           static_cast<const Vector*>(input), static_cast<Vector*>(buffer), shape,
                           range);
            return absl::OkStatus();
          });
        });
      },
      rows);
}

absl::Status TileScatterCuda(const DeviceRows& rows, const void* partial_products, DType dtype,
                             const ScatterSums& sums, const MoveShape& shape,
                             const WindowRange& range, const ExecutionContext& context) {
  return WithStoredType(dtype, [&]<typename T>() {
    return std::visit(
        [&](const auto& layout) {
          return ForVectorBytes<sizeof(T)>(shape.vector_bytes, [&](auto bytes) {
            return ForVectorsInFlight(shape, [&](auto vectors) -> absl::Status {
              auto* const kernel =
                  &TileScatterKernel<std::decay_t<decltype(layout)>, T, bytes(), vectors()>;
              VOXCONV_LAUNCH(kernel, GridOf(shape), kMoveBlock, 0, context, layout,
                             static_cast<const RawVector<bytes()>*>(partial_products), sums, shape,
                             range);
              return absl::OkStatus();
            });
          });
        },
        rows);
  });
}

}  // namespace voxconv
