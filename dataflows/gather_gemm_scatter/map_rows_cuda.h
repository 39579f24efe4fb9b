// One view of the two layouts for kernels: the buffer rows of a row of features. For .cu files.
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MAP_ROWS_CUDA_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MAP_ROWS_CUDA_H_

#include <algorithm>
#include <cstdint>

#include "backends/cuda/cuda_launch.h"
#include "dataflows/gather_gemm_scatter/move_cuda.h"

namespace voxconv {

inline constexpr int kMoveBlock = 256;

// Blocks of kMoveBlock threads: threadIdx.x runs over the threads of a row, threadIdx.y over rows.
inline dim3 MoveBlock(const MoveShape& shape) {
  const unsigned along = static_cast<unsigned>(std::min<int64_t>(shape.threads, kMoveBlock));
  return dim3(along, kMoveBlock / along);
}

// The windows of a launch in a block's shared memory: other than parameters, they may be read at a
// different place by every thread of a warp at little cost.
struct BlockWindows {
  int first, count;
  const DeviceWindow* windows;

  __device__ bool AnyIn(int begin, int end) const {
    for (int i = begin; i < end; ++i) {
      if (windows[i].begin < windows[i].end) return true;
    }
    return false;
  }
};

__device__ inline BlockWindows LoadWindows(const WindowRange& range, DeviceWindow* shared) {
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int step = static_cast<int>(blockDim.x * blockDim.y);
  for (int i = thread; i < range.count; i += step) shared[i] = range.windows[i];
  __syncthreads();
  return {range.first, range.count, shared};
}

// visit(buffer_row) for the pairs of `row` in windows [begin, end), ascending by offset.
template <typename Visit>
__device__ void ForEachPair(const DeviceDenseRows& rows, int64_t row, const BlockWindows& windows,
                            int begin, int end, const Visit& visit) {
  constexpr int kBatch = 4;  // loads in flight
  const int32_t* entries = rows.table + row * rows.num_offsets + windows.first;
  for (int s = begin; s < end; s += kBatch) {
    int32_t position[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      // The columns of offsets that are in other passes are not read.
      const bool used = s + i < end && windows.windows[s + i].begin < windows.windows[s + i].end;
      position[i] = used ? entries[s + i] : -1;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (position[i] < 0) continue;
      const DeviceWindow window = windows.windows[s + i];
      if (position[i] >= window.begin && position[i] < window.end) {
        visit(position[i] + window.shift);
      }
    }
  }
}

template <typename Visit>
__device__ void ForEachPair(const DeviceCodedRows& rows, int64_t row, const BlockWindows& windows,
                            int begin, int end, const Visit& visit) {
  const uint32_t scale = static_cast<uint32_t>(rows.num_offsets);
  const int64_t stop = rows.ptr[row + 1];
  for (int64_t i = rows.ptr[row]; i < stop; ++i) {
    const uint32_t code = rows.codes[i];
    const uint32_t position = code / scale;
    const int s = static_cast<int>(code - position * scale) - windows.first;
    if (s < begin || s >= end) continue;
    const DeviceWindow window = windows.windows[s];
    const int64_t wide = position;
    if (wide >= window.begin && wide < window.end) visit(wide + window.shift);
  }
}

// body(Constant<n>) with the least n of 1, 2, 4 and 8 registers that hold a thread's vectors, or
// with kVectorsPerWalk.
template <typename Body>
absl::Status ForVectorsPerWalk(const MoveShape& shape, const Body& body) {
  static_assert(kVectorsPerWalk == 8);
  const int64_t vectors = shape.vectors_per_thread();
  if (vectors <= 1) return body(std::integral_constant<int, 1>{});
  if (vectors <= 2) return body(std::integral_constant<int, 2>{});
  if (vectors <= 4) return body(std::integral_constant<int, 4>{});
  return body(std::integral_constant<int, 8>{});
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MAP_ROWS_CUDA_H_
