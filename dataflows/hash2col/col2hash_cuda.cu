// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/cuda_vector.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/dataflows/hash2col/col2hash_cuda.h"

namespace voxconv {
namespace {

// Independent loads that a thread keeps in flight.
constexpr int kAhead = 4;
constexpr int kPack = 4;  // f32 values of 16 bytes

// threadIdx.x runs along a row, in packs of V channels.
template <typename T, int V>
__global__ void SumColumns(const ColumnSum sum, int64_t packs) {
  auto* const sums = static_cast<Pack<T, V>*>(sum.sums.data);
  using Part = Pack<float, V>;
  const Part* const columns = reinterpret_cast<const Part*>(sum.columns);
  const int last = sum.num_offsets - 1;
  for (int64_t row = FirstRow(); row < sum.sums.rows; row += RowStride()) {
    const int32_t* const neighbours = sum.neighbours + row * sum.num_offsets;
    for (int64_t pack = threadIdx.x; pack < packs; pack += blockDim.x) {
      Part total{};
      if (sum.so_far != nullptr) {
        total = reinterpret_cast<const Part*>(sum.so_far)[row * packs + pack];
      }
      for (int begin = 0; begin <= last; begin += kAhead) {
        Part parts[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          const int k = begin + i;
          const int64_t column =
              k <= last ? neighbours[sum.reversed ? last - k : k] - sum.first : int64_t{-1};
          parts[i] = column >= 0 && column < sum.count
                         ? columns[(column * sum.num_offsets + k) * packs + pack]
                         : Part{};
        }
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
#pragma unroll
          for (int c = 0; c < V; ++c) total.v[c] += parts[i].v[c];
        }
      }
      Pack<T, V> rounded;
#pragma unroll
      for (int c = 0; c < V; ++c) rounded.v[c] = Narrow<T>(total.v[c]);
      sums[row * packs + pack] = rounded;
    }
  }
}

// Row k * C_in + i of the weights becomes part k of row i. Moves bits, whatever they mean.
template <typename Unit>
__global__ void MoveRows(const Unit* __restrict__ weights, int64_t rows, int64_t c_in,
                         int num_offsets, int64_t units, Unit* __restrict__ unrolled) {
  for (int64_t row = FirstRow(); row < rows; row += RowStride()) {
    const int64_t to = row % c_in * num_offsets + row / c_in;
    for (int64_t u = threadIdx.x; u < units; u += blockDim.x) {
      unrolled[to * units + u] = weights[row * units + u];
    }
  }
}

}  // namespace

absl::Status SumColumnsCuda(const ColumnSum& sum, const ExecutionContext& context) {
  const TensorView& sums = sum.sums;
  const bool wide = sums.channels % kPack == 0 && Aligned({sum.columns, sum.so_far}, 16) &&
                    Aligned({sums.data}, kPack * SizeOf(sums.dtype));
  return WithStoredType(sums.dtype, [&]<typename T>() -> absl::Status {
    const int64_t packs = wide ? sums.channels / kPack : sums.channels;
    auto* const kernel = wide ? &SumColumns<T, kPack> : &SumColumns<T, 1>;
    const RowLaunch launch(sums.rows, packs, context);
    VOXCONV_LAUNCH(kernel, launch.grid, launch.block, 0, context, sum, packs);
    return absl::OkStatus();
  });
}

absl::Status UnrollWeightsCuda(const ConstTensorView& weights, int num_offsets, void* unrolled,
                               const ExecutionContext& context) {
  if (weights.rows == 0) return absl::OkStatus();
  const int64_t row_bytes = weights.channels * SizeOf(weights.dtype);
  const int width = VectorBytes(
      16, {static_cast<uint64_t>(row_bytes), AddressOf(weights.data), AddressOf(unrolled)});
  return ForVectorBytes(width, [&](auto bytes) -> absl::Status {
    using Unit = RawVector<bytes()>;
    const int64_t units = row_bytes / bytes();
    const RowLaunch launch(weights.rows, units, context);
    VOXCONV_LAUNCH(MoveRows<Unit>, launch.grid, launch.block, 0, context,
                   static_cast<const Unit*>(weights.data), weights.rows, weights.rows / num_offsets,
                   num_offsets, units, static_cast<Unit*>(unrolled));
    return absl::OkStatus();
  });
}

}  // namespace voxconv
