// SPDX-License-Identifier: Apache-2.0
// Elements of feature matrices in device code: loads and stores of up to 16 bytes, and arithmetic
// in f32 whatever the stored type. For .cu files.
#ifndef VOXCONV_BACKENDS_CUDA_DEVICE_TENSOR_H_
#define VOXCONV_BACKENDS_CUDA_DEVICE_TENSOR_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "absl/status/status.h"
#include "voxconv/backends/cuda/cuda_backend.h"
#include "voxconv/backends/cuda/cuda_vector.h"
#include "voxconv/core/types.h"

namespace voxconv {

// V elements that one instruction loads or stores.
template <typename T, int V>
struct alignas(sizeof(T) * V) Pack {
  T v[V];
};

__device__ inline float Widen(float value) { return value; }
__device__ inline float Widen(__half value) { return __half2float(value); }
__device__ inline float Widen(__nv_bfloat16 value) { return __bfloat162float(value); }

// Rounds to nearest even.
template <typename T>
__device__ T Narrow(float value);
template <>
__device__ inline float Narrow<float>(float value) {
  return value;
}
template <>
__device__ inline __half Narrow<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ inline __nv_bfloat16 Narrow<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// max(value, 0). A NaN stays a NaN.
__device__ inline float Relu(float value) {
#if __CUDA_ARCH__ >= 800
  float result;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(result) : "f"(value));
  return result;
#else
  return value < 0.0f ? 0.0f : value;
#endif
}

// Calls run.operator()<T>() with the type T whose values are stored as `dtype`.
template <typename Run>
absl::Status WithStoredType(DType dtype, const Run& run) {
  switch (dtype) {
    case DType::kF32:
      return run.template operator()<float>();
    case DType::kF16:
      return run.template operator()<__half>();
    case DType::kBF16:
      return run.template operator()<__nv_bfloat16>();
  }
  return absl::InternalError("unknown dtype");
}

// Calls run.operator()<T, V>() with the stored type T and packs of V elements. A pack has 16 bytes
// if all `pointers` are aligned to 16 bytes and `size` elements fill whole packs. Otherwise it has
// one element. `size` is the number of channels, or of all elements if a pack may span two rows.
template <typename Run>
absl::Status WithPack(DType dtype, int64_t size, std::initializer_list<const void*> pointers,
                      const Run& run) {
  const bool wide = size * SizeOf(dtype) % 16 == 0 && Aligned(pointers, 16);
  return WithStoredType(dtype, [&]<typename T>() {
    constexpr int kWide = 16 / static_cast<int>(sizeof(T));
    return wide ? run.template operator()<T, kWide>() : run.template operator()<T, 1>();
  });
}

// Threads for a matrix of `rows` by `packs`. threadIdx.x goes over the packs of a row with stride
// blockDim.x. threadIdx.y and blockIdx.x go over the rows (FirstRow, RowStride).
struct RowLaunch {
  dim3 grid, block;

  RowLaunch(int64_t rows, int64_t packs, const ExecutionContext& context) {
    constexpr int kThreads = 256;
    if (packs == 0) rows = 0;  // an empty grid queues nothing
    const int x = static_cast<int>(std::clamp<int64_t>(packs, 1, kThreads));
    block = dim3(x, kThreads / x);
    const int64_t most = int64_t{16} * AsCuda(context).num_multiprocessors();
    grid = dim3(static_cast<unsigned>(std::min(most, (rows + block.y - 1) / block.y)));
  }
};

__device__ inline int64_t FirstRow() { return int64_t{blockIdx.x} * blockDim.y + threadIdx.y; }
__device__ inline int64_t RowStride() { return int64_t{gridDim.x} * blockDim.y; }

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_DEVICE_TENSOR_H_
