// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/cuda_vector.h"
#include "voxconv/dataflows/gather_gemm_scatter/map_rows_cuda.h"
#include "voxconv/dataflows/gather_gemm_scatter/move_cuda.h"
#include "voxconv/dataflows/gather_gemm_scatter/vector_sums.cuh"

namespace voxconv {
namespace {

// kElements sums as f32, which is where 16-bit vectors are twice as wide.
template <int kElements>
struct Accumulator {
  static constexpr int kBytes = kElements * 4 < 16 ? kElements * 4 : 16;
  static constexpr int kEach = kBytes / 4;
  using Vector = RawVector<kBytes>;

  static __device__ void Add(const float* from, float* sums) {
#pragma unroll
    for (int c = 0; c < kElements; c += kEach) {
      AddVector<float, kBytes>(*reinterpret_cast<const Vector*>(from + c), sums + c);
    }
  }
  static __device__ void Put(const float* sums, float* to) {
#pragma unroll
    for (int c = 0; c < kElements; c += kEach) {
      PutVector<float, kBytes>(sums + c, reinterpret_cast<Vector*>(to + c));
    }
  }
};

// ScatterSums, typed.
template <typename Vector>
struct Sums {
  const Vector* from_output;
  const float* from_accumulator;
  Vector* to_output;
  float* to_accumulator;
  bool in_place;
};

// The sums of up to kVectors vectors of one output row, from `first` on and `step` apart.
template <typename T, int kBytes, int kVectors>
class RowSums {
 public:
  using Vector = RawVector<kBytes>;

  __device__ RowSums(int64_t first, int64_t step, int64_t vectors)
      : first_(first), step_(step), vectors_(vectors) {}

  __device__ void AddSoFar(const Sums<Vector>& sums, int64_t row) {
    ForVectors([&](int i, int64_t v) {
      const int64_t at = row * vectors_ + v;
      if (sums.from_accumulator != nullptr) {
        Accumulator<kElements>::Add(sums.from_accumulator + at * kElements, sum_[i]);
      } else if (sums.from_output != nullptr) {
        AddVector<T, kBytes>(sums.from_output[at], sum_[i]);
      }
    });
  }

  // In the order of the list, loading some rows ahead.
  __device__ void AddRows(const Vector* partial_products, const RowPairs& pairs) {
    constexpr int kAhead = kVectors == 1 ? 4 : kVectors == 2 ? 2 : 1;
    for (int e = 0; e < pairs.count(); e += kAhead) {
      Vector loaded[kAhead][kVectors];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (e + a >= pairs.count()) break;
        const Vector* row = partial_products + pairs.buffer_row(e + a) * vectors_;
        ForVectors([&](int i, int64_t v) { loaded[a][i] = row[v]; });
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (e + a >= pairs.count()) break;
        ForVectors([&](int i, int64_t) { AddVector<T, kBytes>(loaded[a][i], sum_[i]); });
      }
    }
  }

  __device__ void Put(const Sums<Vector>& sums, int64_t row) const {
    ForVectors([&](int i, int64_t v) {
      const int64_t at = row * vectors_ + v;
      if (sums.to_accumulator != nullptr) {
        Accumulator<kElements>::Put(sum_[i], sums.to_accumulator + at * kElements);
      } else {
        PutVector<T, kBytes>(sum_[i], sums.to_output + at);
      }
    });
  }

 private:
  static constexpr int kElements = kBytes / sizeof(T);

  // body(i, vector of the row)
  template <typename Body>
  __device__ void ForVectors(const Body& body) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int64_t v = first_ + i * step_;
      if (v < vectors_) body(i, v);
    }
  }

  const int64_t first_, step_, vectors_;
  float sum_[kVectors][kElements] = {};
};

// A thread adds its part of an output row's partial products in registers (TorchSparse 4.3.2,
// output-stationary): no atomics, always the same order.
template <typename Rows, typename T, int kBytes, int kVectors>
__global__ void __launch_bounds__(kMoveBlock)
    ScatterKernel(const Rows rows, const RawVector<kBytes>* __restrict__ partial_products,
                  const Sums<RawVector<kBytes>> sums, const MoveShape shape,
                  const __grid_constant__ WindowRange range) {
  extern __shared__ __align__(16) char memory[];
  RowPairs pairs(range, 0, range.count, memory);
  const int64_t first_row = int64_t{blockIdx.x} * blockDim.y;
  pairs.Find(rows, first_row, shape.rows);
  const int64_t row = first_row + threadIdx.y;
  if (row >= shape.rows || (pairs.count() == 0 && sums.in_place)) return;
  for (int64_t thread = threadIdx.x; thread < shape.threads; thread += blockDim.x) {
    for (int64_t v = thread; v < shape.vectors; v += kVectors * shape.threads) {
      RowSums<T, kBytes, kVectors> row_sums(v, shape.threads, shape.vectors);
      row_sums.AddSoFar(sums, row);
      row_sums.AddRows(partial_products, pairs);
      row_sums.Put(sums, row);
    }
  }
}

template <typename T>
absl::Status Scatter(const DeviceRows& rows, const void* partial_products, const ScatterSums& sums,
                     const MoveShape& shape, const WindowRange& range,
                     const ExecutionContext& context) {
  const MoveLaunch launch = LaunchOf(shape, range.count, range.count, 1);
  return std::visit(
      [&](const auto& layout) {
        return ForVectorBytes<sizeof(T)>(shape.vector_bytes, [&](auto bytes) {
          return ForVectorsInFlight(shape, [&](auto vectors) -> absl::Status {
            using Vector = RawVector<bytes()>;
            const Sums<Vector> typed{static_cast<const Vector*>(sums.from_output),
                                     sums.from_accumulator, static_cast<Vector*>(sums.to_output),
                                     sums.to_accumulator, sums.InPlace()};
            auto* const kernel =
                &ScatterKernel<std::decay_t<decltype(layout)>, T, bytes(), vectors()>;
            VOXCONV_LAUNCH(kernel, launch.grid, launch.block, launch.shared_bytes, context, layout,
                           static_cast<const Vector*>(partial_products), typed, shape, range);
            return absl::OkStatus();
          });
        });
      },
      rows);
}

}  // namespace

absl::Status ScatterCuda(const DeviceRows& rows, const void* partial_products, DType dtype,
                         const ScatterSums& sums, const MoveShape& shape, const WindowRange& range,
                         const ExecutionContext& context) {
  return WithStoredType(dtype, [&]<typename T>() {
    return Scatter<T>(rows, partial_products, sums, shape, range, context);
  });
}

}  // namespace voxconv
