// SPDX-License-Identifier: Apache-2.0
// Copies of parts of rows to shared memory, for kernels that multiply on tensor cores.
#ifndef VOXCONV_BACKENDS_CUDA_COPY_CHUNK_CUH_
#define VOXCONV_BACKENDS_CUDA_COPY_CHUNK_CUH_

#include <cstdint>

#include "voxconv/backends/cuda/tensor_core.cuh"

namespace voxconv {

constexpr int kChunkBytes = 16;

// Copies the elements [i, i + 16 / sizeof(T)) of a row of `size` elements. Writes zeros for those
// behind the row's end. If not `valid`, all are zeros. With kVector, `row` is aligned to 16
// bytes, `size` fills whole chunks, and the copy is asynchronous (CommitCopies). `row` must be a
// valid pointer also if not `valid`.
template <typename T, bool kVector>
__device__ __forceinline__ void CopyChunk(char* to, const T* row, int64_t i, int64_t size,
                                          bool valid) {
  if constexpr (kVector) {
    valid = valid && i < size;
    CopyAsync16(SharedAddress(to), valid ? row + i : row, valid);
  } else {
    constexpr int kChunk = kChunkBytes / static_cast<int>(sizeof(T));
    T values[kChunk];
#pragma unroll
    for (int j = 0; j < kChunk; ++j) {
      values[j] = valid && i + j < size ? row[i + j] : static_cast<T>(0.0f);
    }
#pragma unroll
    for (int j = 0; j < kChunk; ++j) reinterpret_cast<T*>(to)[j] = values[j];
  }
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_COPY_CHUNK_CUH_
