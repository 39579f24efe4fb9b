// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/cuda_pooling.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/backends/cuda/map_table.h"

namespace voxconv {
namespace {

constexpr int kBlock = 256;

// Offsets ascend, as on the CPU: the lowest one wins a tie, and a NaN is taken and stays.
template <typename T, int V>
__global__ void MaxPoolRows(const int32_t* table, int num_offsets, const T* x, int64_t rows,
                            int64_t packs, T* y, int32_t* switches) {
  const auto* from = reinterpret_cast<const Pack<T, V>*>(x);
  for (int64_t row = FirstRow(); row < rows; row += RowStride()) {
    for (int64_t c = threadIdx.x; c < packs; c += blockDim.x) {
      float best[V] = {};
      int32_t taken[V];
      for (int i = 0; i < V; ++i) taken[i] = -1;
      for (int k = 0; k < num_offsets; ++k) {
        const int32_t p = table[row * num_offsets + k];
        if (p < 0) continue;
        const Pack<T, V> in = from[p * packs + c];
        for (int i = 0; i < V; ++i) {
          const float v = Widen(in.v[i]);
          if (taken[i] >= 0 && !(v > best[i]) && v == v) continue;
          best[i] = v;
          taken[i] = p;
        }
      }
      Pack<T, V> out;
      for (int i = 0; i < V; ++i) out.v[i] = Narrow<T>(best[i]);
      reinterpret_cast<Pack<T, V>*>(y)[row * packs + c] = out;
      if (switches == nullptr) continue;
      for (int i = 0; i < V; ++i) switches[(row * packs + c) * V + i] = taken[i];
    }
  }
}

template <typename T, int V>
__global__ void SumPoolRows(const int32_t* table, int num_offsets, PoolMode mode, const T* x,
                            int64_t rows, int64_t packs, T* y) {
  const auto* from = reinterpret_cast<const Pack<T, V>*>(x);
  for (int64_t row = FirstRow(); row < rows; row += RowStride()) {
    for (int64_t c = threadIdx.x; c < packs; c += blockDim.x) {
      float sum[V] = {};
      int present = 0;
      for (int k = 0; k < num_offsets; ++k) {
        const int32_t p = table[row * num_offsets + k];
        if (p < 0) continue;
        ++present;
        const Pack<T, V> in = from[p * packs + c];
        for (int i = 0; i < V; ++i) sum[i] += Widen(in.v[i]);
      }
      const int divisor = mode == PoolMode::kAverage ? num_offsets
                          : mode == PoolMode::kSum   ? 1
                                                     : max(present, 1);
      Pack<T, V> out;
      for (int i = 0; i < V; ++i) out.v[i] = Narrow<T>(sum[i] / static_cast<float>(divisor));
      reinterpret_cast<Pack<T, V>*>(y)[row * packs + c] = out;
    }
  }
}

// How many inputs each output row has.
__global__ void CountPresent(const int32_t* out, int64_t pairs, int32_t* present) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < pairs) atomicAdd(&present[out[i]], 1);
}

// What an output row's value is shared among: a number for all, or one each.
struct Divisor {
  float all;
  const int32_t* each;  // null: `all`
};

// in_table[p * K + k]: output row. With switches an output's value goes to the row it came from.
template <typename T, int V>
__global__ void UnpoolRows(const int32_t* in_table, int num_offsets, const int32_t* switches,
                           Divisor divisor, const T* x, int64_t rows, int64_t packs, T* y) {
  const auto* from = reinterpret_cast<const Pack<T, V>*>(x);
  for (int64_t row = FirstRow(); row < rows; row += RowStride()) {
    for (int64_t c = threadIdx.x; c < packs; c += blockDim.x) {
      float sum[V] = {};
      for (int k = 0; k < num_offsets; ++k) {
        const int32_t q = in_table[row * num_offsets + k];
        if (q < 0) continue;
        const Pack<T, V> in = from[q * packs + c];
        const float share =
            divisor.each == nullptr ? divisor.all : static_cast<float>(divisor.each[q]);
        for (int i = 0; i < V; ++i) {
          if (switches != nullptr && switches[(q * packs + c) * V + i] != row) continue;
          sum[i] += Widen(in.v[i]) / share;
        }
      }
      Pack<T, V> out;
      for (int i = 0; i < V; ++i) out.v[i] = Narrow<T>(sum[i]);
      reinterpret_cast<Pack<T, V>*>(y)[row * packs + c] = out;
    }
  }
}

}  // namespace

absl::Status CudaPool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                      const TensorView& y, int32_t* switches, const ExecutionContext& context) {
  if (y.rows == 0 || y.channels == 0) return absl::OkStatus();
  Array<int32_t> made;
  if (map.form() == MapForm::kPairs) {
    VOXCONV_ASSIGN_OR_RETURN(made, OutputTable(map, context));
  }
  const int32_t* const table =
      map.form() == MapForm::kPairs ? made.data() : map.table().table.data();
  return WithPack(x.dtype, x.channels, {x.data, y.data}, [&]<typename T, int V>() {
    const RowLaunch launch(y.rows, y.channels / V, context);
    const T* from = static_cast<const T*>(x.data);
    T* to = static_cast<T*>(y.data);
    if (mode == PoolMode::kMax) {
      VOXCONV_LAUNCH((MaxPoolRows<T, V>), launch.grid, launch.block, 0, context, table,
                     map.num_offsets(), from, y.rows, y.channels / V, to, switches);
    } else {
      VOXCONV_LAUNCH((SumPoolRows<T, V>), launch.grid, launch.block, 0, context, table,
                     map.num_offsets(), mode, from, y.rows, y.channels / V, to);
    }
    return absl::OkStatus();
  });
}

absl::Status CudaUnpool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                        const int32_t* switches, const TensorView& y,
                        const ExecutionContext& context) {
  if (y.rows == 0 || y.channels == 0) return absl::OkStatus();
  VOXCONV_ASSIGN_OR_RETURN(const Array<int32_t> in_table, InputTable(map, context));
  Array<int32_t> present;
  Divisor divisor{mode == PoolMode::kAverage ? static_cast<float>(map.num_offsets()) : 1.0f,
                  nullptr};
  if (mode == PoolMode::kAveragePresent) {
    VOXCONV_ASSIGN_OR_RETURN(present, AllocateArray<int32_t>(x.rows, context));
    VOXCONV_RETURN_IF_ERROR(
        context.backend->FillBytes(present.data(), 0, present.bytes(), *context.stream));
    VOXCONV_LAUNCH(CountPresent, GridFor(map.num_pairs(), kBlock), kBlock, 0, context,
                   map.pairs().out.data(), map.num_pairs(), present.data());
    divisor.each = present.data();
  }
  return WithPack(x.dtype, x.channels, {x.data, y.data}, [&]<typename T, int V>() {
    const RowLaunch launch(y.rows, y.channels / V, context);
    VOXCONV_LAUNCH((UnpoolRows<T, V>), launch.grid, launch.block, 0, context, in_table.data(),
                   map.num_offsets(), mode == PoolMode::kMax ? switches : nullptr, divisor,
                   static_cast<const T*>(x.data), y.rows, y.channels / V, static_cast<T*>(y.data));
    return absl::OkStatus();
  });
}

}  // namespace voxconv
