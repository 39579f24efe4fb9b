// SPDX-License-Identifier: Apache-2.0
// How kernels find the buffer rows of a row of features, in either layout of a kernel map. Only .cu
// files include this header.
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MAP_ROWS_CUDA_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MAP_ROWS_CUDA_H_

#include <algorithm>
#include <cstdint>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/dataflows/gather_gemm_scatter/move_cuda.h"

namespace voxconv {

inline constexpr int kMoveBlock = 256;

// The launch of a movement kernel. threadIdx.x runs over the threads of a row, threadIdx.y over the
// rows of a block.
struct MoveLaunch {
  dim3 grid, block;
  size_t shared_bytes = 0;
};

// The launch for a range of `windows` offsets. The range is cut into `slices` slices of `offsets`
// offsets each, and each slice is one layer of the grid.
inline MoveLaunch LaunchOf(const MoveShape& shape, int windows, int offsets, int slices) {
  // The most list entries of a block. A block of one warp may exceed it.
  constexpr int64_t kListEntries = 4096;
  constexpr int64_t kWarp = 32;
  const int64_t along = std::min<int64_t>(shape.threads, kMoveBlock);
  const int64_t rows =
      std::max(std::min(kMoveBlock / along, kListEntries / offsets), CeilDiv(kWarp, along));
  MoveLaunch launch;
  launch.block = dim3(static_cast<unsigned>(along), static_cast<unsigned>(rows));
  launch.grid = GridFor(shape.rows, static_cast<int>(rows));
  launch.grid.y = static_cast<unsigned>(slices);
  if (offsets > 1) {
    launch.shared_bytes =
        windows * sizeof(DeviceWindow) + rows * (offsets * sizeof(int64_t) + sizeof(int32_t));
  }
  return launch;
}

// The buffer rows that belong to a thread's row of features, for one slice of a launch's offsets.
// They ascend by offset. One warp reads all map entries of a row and writes the buffer rows to
// shared memory, where all threads that move the row read them. In a slice of one offset, each
// thread reads the map itself.
class RowPairs {
 public:
  // `memory` is shared memory of LaunchOf().shared_bytes. `range` must outlive this object.
  __device__ RowPairs(const WindowRange& range, int begin, int end, char* memory)
      : range_(range),
        begin_(begin),
        end_(end),
        windows_(reinterpret_cast<DeviceWindow*>(memory)),
        lists_(reinterpret_cast<int64_t*>(windows_ + range.count)),
        counts_(reinterpret_cast<int32_t*>(lists_ + (end - begin) * int64_t{blockDim.y})) {}

  // Finds the buffer rows of rows first_row + threadIdx.y. Rows [0, num_rows) exist. All threads
  // of the block must call this function.
  template <typename Rows>
  __device__ void Find(const Rows& rows, int64_t first_row, int64_t num_rows) {
    if (end_ - begin_ == 1) {
      if (first_row + threadIdx.y < num_rows) FindOne(rows, first_row + threadIdx.y);
      return;
    }
    // In shared memory the lanes of a warp may read different windows at once.
    const int step = static_cast<int>(blockDim.x * blockDim.y);
    for (int i = Thread(); i < range_.count; i += step) windows_[i] = range_.windows[i];
    __syncthreads();
    const int warps = step / 32;  // the full ones
    const int warp = Thread() / 32;
    const int block_rows = static_cast<int>(min(int64_t{blockDim.y}, num_rows - first_row));
    for (int r = warp; warp < warps && r < block_rows; r += warps * kRowsAtOnce) {
      FindAll(rows, first_row, r, warps, block_rows);
    }
    __syncthreads();
    count_ = counts_[threadIdx.y];
  }

  __device__ int count() const { return count_; }
  __device__ int64_t buffer_row(int i) const {
    return end_ - begin_ == 1 ? one_ : lists_[threadIdx.y * (end_ - begin_) + i];
  }

 private:
  // A warp has loads in flight for this many rows.
  static constexpr int kRowsAtOnce = 4;

  static __device__ int Thread() {
    return static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  }
  static __device__ int Lane() { return Thread() & 31; }

  static __device__ bool Contains(const DeviceWindow& window, int64_t position) {
    return position >= window.begin && position < window.end;
  }

  // Appends `buffer_row` of every lane with `found` to the list of row r, in the order of the
  // lanes. The list has `count` entries before. Returns the number of entries after.
  __device__ int Append(int r, int count, bool found, int64_t buffer_row) {
    const unsigned all = __ballot_sync(0xffffffffu, found);
    const unsigned before = all & ((1u << Lane()) - 1);
    if (found) lists_[r * (end_ - begin_) + count + __popc(before)] = buffer_row;
    return count + __popc(all);
  }

  // Fills the lists of kRowsAtOnce rows of the block: r, r + step, ... Rows from block_rows on do
  // not exist and are left out.
  __device__ void FindAll(const DeviceDenseRows& rows, int64_t first_row, int r, int step,
                          int block_rows) {
    int count[kRowsAtOnce] = {};
    for (int s0 = begin_; s0 < end_; s0 += 32) {
      const int s = s0 + Lane();
      DeviceWindow window;
      if (s < end_) window = windows_[s];
      int32_t position[kRowsAtOnce];
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) {
        // This pass does not read the columns of other passes' offsets.
        const bool used = window.begin < window.end && r + i * step < block_rows;
        const int64_t row = first_row + r + i * step;
        position[i] = used ? rows.table[row * rows.num_offsets + range_.first + s] : -1;
      }
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) {
        if (r + i * step >= block_rows) break;
        const bool found = position[i] >= 0 && Contains(window, position[i]);
        count[i] = Append(r + i * step, count[i], found, position[i] + window.shift);
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      if (Lane() == 0 && r + i * step < block_rows) counts_[r + i * step] = count[i];
    }
  }

  __device__ void FindAll(const DeviceCodedRows& rows, int64_t first_row, int r, int step,
                          int block_rows) {
    int64_t next[kRowsAtOnce], stop[kRowsAtOnce];
    uint32_t code[kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const bool exists = r + i * step < block_rows;
      const int64_t row = first_row + r + i * step;
      next[i] = exists ? rows.ptr[row] + Lane() : 0;
      stop[i] = exists ? rows.ptr[row + 1] : 0;
    }
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) code[i] = next[i] < stop[i] ? rows.codes[next[i]] : 0;
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      if (r + i * step >= block_rows) break;
      int count = AppendCode(rows, r + i * step, 0, next[i] < stop[i], code[i]);
      while (next[i] - Lane() + 32 < stop[i]) {  // more codes than lanes
        next[i] += 32;
        const bool exists = next[i] < stop[i];
        count = AppendCode(rows, r + i * step, count, exists, exists ? rows.codes[next[i]] : 0);
      }
      if (Lane() == 0) counts_[r + i * step] = count;
    }
  }

  __device__ int AppendCode(const DeviceCodedRows& rows, int r, int count, bool exists,
                            uint32_t code) {
    const uint32_t scale = static_cast<uint32_t>(rows.num_offsets);
    const uint32_t position = code / scale;
    const int s = static_cast<int>(code - position * scale) - range_.first;
    DeviceWindow window;
    if (exists && s >= begin_ && s < end_) window = windows_[s];
    return Append(r, count, Contains(window, position), position + window.shift);
  }

  __device__ void FindOne(const DeviceDenseRows& rows, int64_t row) {
    const int32_t position = rows.table[row * rows.num_offsets + range_.first + begin_];
    const DeviceWindow& window = range_.windows[begin_];
    count_ = position >= 0 && Contains(window, position);
    one_ = position + window.shift;
  }
  __device__ void FindOne(const DeviceCodedRows& rows, int64_t row) {
    const uint32_t scale = static_cast<uint32_t>(rows.num_offsets);
    const DeviceWindow& window = range_.windows[begin_];
    const int64_t stop = rows.ptr[row + 1];
    for (int64_t i = rows.ptr[row]; i < stop; ++i) {
      const uint32_t code = rows.codes[i];
      const uint32_t position = code / scale;
      if (code - position * scale != static_cast<uint32_t>(range_.first + begin_)) continue;
      count_ = Contains(window, position);
      one_ = position + window.shift;
    }
  }

  const WindowRange& range_;
  const int begin_, end_;
  DeviceWindow* const windows_;  // of the range
  int64_t* const lists_;         // [rows of the block][offsets of the slice]
  int32_t* const counts_;        // [rows of the block]
  int count_ = 0;
  int64_t one_ = 0;
};

// Calls body(std::integral_constant<int, n>). n is the least of 1, 2, 4 and 8 registers that hold
// all vectors of a thread. n is 8 (kVectorsInFlight) if a thread has more vectors.
template <typename Body>
absl::Status ForVectorsInFlight(const MoveShape& shape, const Body& body) {
  static_assert(kVectorsInFlight == 8);
  const int64_t vectors = shape.vectors_per_thread();
  if (vectors <= 1) return body(std::integral_constant<int, 1>{});
  if (vectors <= 2) return body(std::integral_constant<int, 2>{});
  if (vectors <= 4) return body(std::integral_constant<int, 4>{});
  return body(std::integral_constant<int, 8>{});
}

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MAP_ROWS_CUDA_H_
