// SPDX-License-Identifier: Apache-2.0
// What the kernels of losses share: rows of logits that neighbouring lanes of a warp read together,
// and sums over a block.
#ifndef VOXCONV_BACKENDS_CUDA_SOFTMAX_ROWS_CUH_
#define VOXCONV_BACKENDS_CUDA_SOFTMAX_ROWS_CUH_

#include <cstdint>
#include <cub/block/block_reduce.cuh>
#include <limits>

#include "voxconv/backends/cuda/device_tensor.h"

namespace voxconv {

inline constexpr int kLossBlock = 256;

// The sum over the threads of a block of kLossBlock threads, for thread 0. Its order is fixed.
// Waits for all threads. `add`: a function object.
template <typename T, typename Add>
__device__ T BlockSum(const T& value, const Add& add) {
  using Reduce = cub::BlockReduce<T, kLossBlock>;
  __shared__ typename Reduce::TempStorage storage;
  const T sum = Reduce(storage).Reduce(value, add);
  __syncthreads();
  return sum;
}

// How many lanes work on one row of so many classes: a power of two, at most a warp.
inline int LanesOfRow(int64_t classes) {
  constexpr int kWarp = 32;
  int lanes = 1;
  while (lanes < kWarp && lanes < classes) lanes *= 2;
  return lanes;
}

// The largest of some logits, and the first class that has it.
struct Largest {
  float logit;
  int32_t index;

  __device__ void Take(float other, int32_t at) {
    if (other > logit || (other == logit && at < index)) *this = {other, at};
  }
};

// `lanes` neighbours of a warp, a power of two, work on one row. All lanes of the warp call these.
__device__ inline Largest LargestOf(Largest value, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) {
    const float logit = __shfl_xor_sync(0xffffffffu, value.logit, step);
    const int32_t index = __shfl_xor_sync(0xffffffffu, value.index, step);
    value.Take(logit, index);
  }
  return value;
}
__device__ inline float SumOf(float value, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, step);
  }
  return value;
}

// One row of logits, of which a lane has every lanes-th.
template <typename T>
class LogitRow {
 public:
  __device__ LogitRow(const T* logits, int64_t classes, int lane)
      : logits_(logits), lane_(lane), first_(lane < classes ? Widen(logits[lane]) : 0.0f) {}

  // Most rows have no more logits than lanes, and are read once.
  __device__ float operator[](int64_t c) const { return c == lane_ ? first_ : Widen(logits_[c]); }

 private:
  const T* logits_;
  int lane_;
  float first_;
};

// The largest logit of the row, and the sum of exp(logit - largest) over its classes.
struct SoftmaxSums {
  Largest largest;
  float sum;
};
template <typename T>
__device__ SoftmaxSums SoftmaxSumsOf(const LogitRow<T>& values, int64_t classes, int lane,
                                     int lanes) {
  Largest largest{-std::numeric_limits<float>::infinity(), std::numeric_limits<int32_t>::max()};
  for (int64_t c = lane; c < classes; c += lanes) {
    largest.Take(values[c], static_cast<int32_t>(c));
  }
  largest = LargestOf(largest, lanes);
  float sum = 0;
  for (int64_t c = lane; c < classes; c += lanes) sum += expf(values[c] - largest.logit);
  return {largest, SumOf(sum, lanes)};
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_SOFTMAX_ROWS_CUH_
