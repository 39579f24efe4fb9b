// SPDX-License-Identifier: Apache-2.0
// Sums in f32 of vectors of stored elements. Only .cu files include this header.
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_VECTOR_SUMS_CUH_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_VECTOR_SUMS_CUH_

#include <cstring>

#include "voxconv/backends/cuda/cuda_vector.h"
#include "voxconv/backends/cuda/device_tensor.h"

namespace voxconv {

// Adds the elements of a vector, widened, to `sums`.
template <typename T, int kBytes>
__device__ void AddVector(const RawVector<kBytes>& raw, float* sums) {
  constexpr int kElements = kBytes / sizeof(T);
  T values[kElements];
  memcpy(values, &raw, kBytes);
#pragma unroll
  for (int c = 0; c < kElements; ++c) sums[c] += Widen(values[c]);
}

// Stores `sums`, rounded.
template <typename T, int kBytes>
__device__ void PutVector(const float* sums, RawVector<kBytes>* to) {
  constexpr int kElements = kBytes / sizeof(T);
  T values[kElements];
#pragma unroll
  for (int c = 0; c < kElements; ++c) values[c] = Narrow<T>(sums[c]);
  RawVector<kBytes> raw;
  memcpy(&raw, values, kBytes);
  *to = raw;
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_VECTOR_SUMS_CUH_
