// SPDX-License-Identifier: Apache-2.0
// Scatter in weight order with one launch for many offsets, which add to the same rows at once
// (TorchSparse 4.3.2: the fused movement before it is locality-aware).
#include <variant>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/cuda_vector.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/dataflows/gather_gemm_scatter/map_rows_cuda.h"
#include "voxconv/dataflows/gather_gemm_scatter/move_cuda.h"

namespace voxconv {
namespace {

template <int kElements>
__device__ void AddAtomically(const float* values, float* to) {
#if __CUDA_ARCH__ >= 900
  if constexpr (kElements % 4 == 0) {
    if (reinterpret_cast<uintptr_t>(to) % 16 == 0) {
#pragma unroll
      for (int c = 0; c < kElements; c += 4) {
        atomicAdd(reinterpret_cast<float4*>(to + c),
                  make_float4(values[c], values[c + 1], values[c + 2], values[c + 3]));
      }
      return;
    }
  }
#endif
#pragma unroll
  for (int c = 0; c < kElements; ++c) atomicAdd(to + c, values[c]);
}

// blockIdx.y: the offset of the range. A thread adds vectors of one pair's partial product.
template <typename Rows, typename T, int kBytes>
__global__ void __launch_bounds__(kMoveBlock)
    AtomicScatterKernel(const Rows rows, const RawVector<kBytes>* __restrict__ partial_products,
                        float* __restrict__ sums, const MoveShape shape,
                        const __grid_constant__ WindowRange range) {
  constexpr int kElements = kBytes / sizeof(T);
  const int offset = static_cast<int>(blockIdx.y);
  if (range.windows[offset].begin == range.windows[offset].end) return;
  RowPairs pairs(range, offset, offset + 1, nullptr);  // of one offset: no shared memory
  const int64_t first_row = int64_t{blockIdx.x} * blockDim.y;
  pairs.Find(rows, first_row, shape.rows);
  const int64_t row = first_row + threadIdx.y;
  if (row >= shape.rows || pairs.count() == 0) return;
  const RawVector<kBytes>* from = partial_products + pairs.buffer_row(0) * shape.vectors;
  for (int64_t v = threadIdx.x; v < shape.vectors; v += blockDim.x) {
    T values[kElements];
    memcpy(values, from + v, kBytes);
    float wide[kElements];
#pragma unroll
    for (int c = 0; c < kElements; ++c) wide[c] = Widen(values[c]);
    AddAtomically<kElements>(wide, sums + (row * shape.vectors + v) * kElements);
  }
}

}  // namespace

absl::Status AtomicScatterCuda(const DeviceRows& rows, const void* partial_products, DType dtype,
                               float* sums, const MoveShape& shape, const WindowRange& range,
                               const ExecutionContext& context) {
  const MoveLaunch launch = LaunchOf(shape, range.count, 1, range.count);
  return WithStoredType(dtype, [&]<typename T>() {
    return std::visit(
        [&](const auto& layout) {
          return ForVectorBytes<sizeof(T)>(shape.vector_bytes, [&](auto bytes) -> absl::Status {
            auto* const kernel = &AtomicScatterKernel<std::decay_t<decltype(layout)>, T, bytes()>;
            VOXCONV_LAUNCH(kernel, launch.grid, launch.block, 0, context, layout,
                           static_cast<const RawVector<bytes()>*>(partial_products), sums, shape,
                           range);
            return absl::OkStatus();
          });
        },
        rows);
  });
}

}  // namespace voxconv
