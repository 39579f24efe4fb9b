// SPDX-License-Identifier: Apache-2.0
// Finds the piece that a number lies in. Pieces begin at ascending numbers: the offset of a pair,
// or the work of a thread block. Only .cu files include this header.
#ifndef VOXCONV_BACKENDS_CUDA_LAST_NOT_ABOVE_CUH_
#define VOXCONV_BACKENDS_CUDA_LAST_NOT_ABOVE_CUH_

namespace voxconv {

// Returns the last i in [0, count) with firsts[i] <= value. `firsts` is in device memory. It
// ascends, and firsts[0] is not above `value`. O(log count).
template <typename T>
__device__ __forceinline__ int LastNotAbove(const T* firsts, int count, T value) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (firsts[middle] <= value) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_LAST_NOT_ABOVE_CUH_
