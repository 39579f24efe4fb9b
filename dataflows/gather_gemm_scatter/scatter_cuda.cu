#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>

#include "backends/cuda/cuda_vector.h"
#include "dataflows/gather_gemm_scatter/map_rows_cuda.h"
#include "dataflows/gather_gemm_scatter/move_cuda.h"

namespace voxconv {
namespace {

__device__ float Widen(float value) { return value; }
__device__ float Widen(__half value) { return __half2float(value); }
__device__ float Widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ void Round(float value, float& to) { to = value; }
__device__ void Round(float value, __half& to) { to = __float2half_rn(value); }
__device__ void Round(float value, __nv_bfloat16& to) { to = __float2bfloat16_rn(value); }

// sums[c] = values[c], or += with kAdd.
template <typename T, int kBytes, bool kAdd>
__device__ void TakeVector(const RawVector<kBytes>* from, float* sums) {
  constexpr int kElements = kBytes / sizeof(T);
  const RawVector<kBytes> raw = *from;
  T values[kElements];
  memcpy(values, &raw, kBytes);
#pragma unroll
  for (int c = 0; c < kElements; ++c) {
    sums[c] = kAdd ? sums[c] + Widen(values[c]) : Widen(values[c]);
  }
}

template <typename T, int kBytes>
__device__ void PutVector(const float* sums, RawVector<kBytes>* to) {
  constexpr int kElements = kBytes / sizeof(T);
  T values[kElements];
#pragma unroll
  for (int c = 0; c < kElements; ++c) Round(sums[c], values[c]);
  RawVector<kBytes> raw;
  memcpy(&raw, values, kBytes);
  *to = raw;
}

// kElements sums as f32, which is where 16-bit vectors are twice as wide.
template <int kElements>
struct Accumulator {
  static constexpr int kBytes = kElements * 4 < 16 ? kElements * 4 : 16;
  static constexpr int kEach = kBytes / 4;

  static __device__ void Load(const float* from, float* sums) {
#pragma unroll
    for (int c = 0; c < kElements; c += kEach) {
      TakeVector<float, kBytes, false>(reinterpret_cast<const RawVector<kBytes>*>(from + c),
                                       sums + c);
    }
  }
  static __device__ void Store(const float* sums, float* to) {
#pragma unroll
    for (int c = 0; c < kElements; c += kEach) {
      PutVector<float, kBytes>(sums + c, reinterpret_cast<RawVector<kBytes>*>(to + c));
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

// A thread adds its part of an output row's partial products in registers (TorchSparse 4.3.2,
// output-stationary): no atomics, always the same order.
template <typename Rows, typename T, int kBytes, int kVectors>
__global__ void __launch_bounds__(kMoveBlock)
    ScatterKernel(const Rows rows, const RawVector<kBytes>* __restrict__ partial_products,
                  const Sums<RawVector<kBytes>> sums, const MoveShape shape,
                  const __grid_constant__ WindowRange range) {
  constexpr int kElements = kBytes / sizeof(T);
  __shared__ DeviceWindow shared[kMaxOffsetsPerLaunch];
  const BlockWindows windows = LoadWindows(range, shared);
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= shape.rows) return;
  for (int64_t thread = threadIdx.x; thread < shape.threads; thread += blockDim.x) {
    for (int64_t v = thread; v < shape.vectors; v += kVectors * shape.threads) {
      float sum[kVectors][kElements] = {};
      // body(i, vector of the output) for the vectors of this walk.
      const auto for_vectors = [&](const auto& body) {
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          const int64_t at = v + i * shape.threads;
          if (at < shape.vectors) body(i, row * shape.vectors + at);
        }
      };
      const auto take_sum_so_far = [&] {
        for_vectors([&](int i, int64_t at) {
          if (sums.from_accumulator != nullptr) {
            Accumulator<kElements>::Load(sums.from_accumulator + at * kElements, sum[i]);
          } else if (sums.from_output != nullptr) {
            TakeVector<T, kBytes, false>(sums.from_output + at, sum[i]);
          }
        });
      };
      bool started = false;
      ForEachPair(rows, row, windows, 0, windows.count, [&](int64_t buffer_row) {
        if (!started) take_sum_so_far();
        started = true;
        const RawVector<kBytes>* from = partial_products + buffer_row * shape.vectors;
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          const int64_t at = v + i * shape.threads;
          if (at < shape.vectors) TakeVector<T, kBytes, true>(from + at, sum[i]);
        }
      });
      if (!started) {
        if (sums.in_place) continue;
        take_sum_so_far();
      }
      for_vectors([&](int i, int64_t at) {
        if (sums.to_accumulator != nullptr) {
          Accumulator<kElements>::Store(sum[i], sums.to_accumulator + at * kElements);
        } else {
          PutVector<T, kBytes>(sum[i], sums.to_output + at);
        }
      });
    }
  }
}

template <typename T>
absl::Status Scatter(const DeviceRows& rows, const void* partial_products, const ScatterSums& sums,
                     const MoveShape& shape, const WindowRange& range,
                     const ExecutionContext& context) {
  const dim3 block = MoveBlock(shape);
  const dim3 grid = GridFor(shape.rows, static_cast<int>(block.y));
  return std::visit(
      [&](const auto& layout) {
        return ForVectorBytes<sizeof(T)>(shape.vector_bytes, [&](auto bytes) {
          return ForVectorsPerWalk(shape, [&](auto vectors) -> absl::Status {
            using Vector = RawVector<bytes()>;
            const Sums<Vector> typed{static_cast<const Vector*>(sums.from_output),
                                     sums.from_accumulator, static_cast<Vector*>(sums.to_output),
                                     sums.to_accumulator, sums.InPlace()};
            auto* const kernel =
                &ScatterKernel<std::decay_t<decltype(layout)>, T, bytes(), vectors()>;
            VOXCONV_LAUNCH(kernel, grid, block, 0, context, layout,
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
  switch (dtype) {
    case DType::kF16:
      return Scatter<__half>(rows, partial_products, sums, shape, range, context);
    case DType::kBF16:
      return Scatter<__nv_bfloat16>(rows, partial_products, sums, shape, range, context);
    case DType::kF32:
    case DType::kTf32:
      return Scatter<float>(rows, partial_products, sums, shape, range, context);
  }
  VOXCONV_CHECK(false);
  return absl::OkStatus();
}

}  // namespace voxconv
