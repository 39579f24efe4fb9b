// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/dataflows/hash2col/pool_columns_cuda.h"

namespace voxconv {
namespace {

// Of equal maxima the lowest offset's is taken, and a NaN is taken and stays, as on the CPU.
template <typename T, int V>
__device__ void PoolMax(const ColumnPool& pool, const int32_t* neighbours, const Pack<T, V>* column,
                        int64_t packs, float (&best)[V], int32_t (&taken)[V]) {
  for (int i = 0; i < V; ++i) taken[i] = -1;
  for (int k = 0; k < pool.num_offsets; ++k) {
    const int32_t p = neighbours[k];
    if (p < 0) continue;
    const Pack<T, V> part = column[k * packs];
    for (int i = 0; i < V; ++i) {
      const float v = Widen(part.v[i]);
      if (taken[i] >= 0 && !(v > best[i]) && v == v) continue;
      best[i] = v;
      taken[i] = p;
    }
  }
}

// What the sum of a window of `present` inputs is divided by.
__device__ float DivisorOf(PoolMode mode, int num_offsets, int present) {
  if (mode == PoolMode::kAverage) return static_cast<float>(num_offsets);
  return mode == PoolMode::kAveragePresent ? static_cast<float>(max(present, 1)) : 1.0f;
}

template <typename T, int V>
__device__ void PoolSum(const ColumnPool& pool, const int32_t* neighbours, const Pack<T, V>* column,
                        int64_t packs, float (&sum)[V]) {
  int present = 0;
  for (int k = 0; k < pool.num_offsets; ++k) {
    if (neighbours[k] < 0) continue;
    ++present;
    const Pack<T, V> part = column[k * packs];
    for (int i = 0; i < V; ++i) sum[i] += Widen(part.v[i]);
  }
  const float divisor = DivisorOf(pool.mode, pool.num_offsets, present);
  for (int i = 0; i < V; ++i) sum[i] /= divisor;
}

// threadIdx.x runs along a row, in packs of V channels.
template <typename T, int V>
__global__ void PoolColumns(const ColumnPool pool, int64_t packs) {
  const auto* const columns = static_cast<const Pack<T, V>*>(pool.columns);
  auto* const pooled = static_cast<Pack<T, V>*>(pool.pooled.data);
  for (int64_t row = FirstRow(); row < pool.pooled.rows; row += RowStride()) {
    const int32_t* const neighbours = pool.neighbours + row * pool.num_offsets;
    for (int64_t c = threadIdx.x; c < packs; c += blockDim.x) {
      const Pack<T, V>* const column = columns + row * pool.num_offsets * packs + c;
      float value[V] = {};
      if (pool.mode == PoolMode::kMax) {
        int32_t taken[V];
        PoolMax(pool, neighbours, column, packs, value, taken);
        for (int i = 0; i < V && pool.switches != nullptr; ++i) {
          pool.switches[(row * packs + c) * V + i] = taken[i];
        }
      } else {
        PoolSum(pool, neighbours, column, packs, value);
      }
      Pack<T, V> out;
      for (int i = 0; i < V; ++i) out.v[i] = Narrow<T>(value[i]);
      pooled[row * packs + c] = out;
    }
  }
}

// A row is one part of a column: threadIdx.x runs along it.
template <typename T>
__global__ void SpreadColumns(const ColumnSpread spread) {
  const int64_t channels = spread.values.channels;
  const auto* const values = static_cast<const T*>(spread.values.data);
  const int64_t parts = spread.values.rows * spread.num_offsets;
  for (int64_t part = FirstRow(); part < parts; part += RowStride()) {
    const int64_t row = part / spread.num_offsets;
    const int32_t* const neighbours = spread.neighbours + row * spread.num_offsets;
    const int32_t p = spread.neighbours[part];
    int present = 0;
    for (int k = 0; spread.mode == PoolMode::kAveragePresent && k < spread.num_offsets; ++k) {
      present += neighbours[k] >= 0 ? 1 : 0;
    }
    const float divisor = DivisorOf(spread.mode, spread.num_offsets, present);
    for (int64_t c = threadIdx.x; c < channels; c += blockDim.x) {
      const int64_t at = row * channels + c;
      const bool has = p >= 0 && (spread.mode != PoolMode::kMax || spread.switches[at] == p);
      spread.columns[part * channels + c] = has ? Widen(values[at]) / divisor : 0.0f;
    }
  }
}

}  // namespace

absl::Status PoolColumnsCuda(const ColumnPool& pool, const ExecutionContext& context) {
  const TensorView& y = pool.pooled;
  if (y.rows == 0) return absl::OkStatus();
  return WithPack(y.dtype, y.channels, {pool.columns, y.data},
                  [&]<typename T, int V>() -> absl::Status {
                    const RowLaunch launch(y.rows, y.channels / V, context);
                    VOXCONV_LAUNCH((PoolColumns<T, V>), launch.grid, launch.block, 0, context, pool,
                                   y.channels / V);
                    return absl::OkStatus();
                  });
}

absl::Status SpreadColumnsCuda(const ColumnSpread& spread, const ExecutionContext& context) {
  const int64_t parts = spread.values.rows * spread.num_offsets;
  if (parts == 0) return absl::OkStatus();
  return WithStoredType(spread.values.dtype, [&]<typename T>() -> absl::Status {
    const RowLaunch launch(parts, spread.values.channels, context);
    VOXCONV_LAUNCH(SpreadColumns<T>, launch.grid, launch.block, 0, context, spread);
    return absl::OkStatus();
  });
}

}  // namespace voxconv
