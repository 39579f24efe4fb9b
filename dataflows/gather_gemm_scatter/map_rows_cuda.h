// One view of the two layouts for kernels: the buffer rows of a row of features. For .cu files.
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MAP_ROWS_CUDA_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MAP_ROWS_CUDA_H_

#include <algorithm>
#include <cstdint>

#include "backends/cuda/cuda_launch.h"
#include "dataflows/gather_gemm_scatter/move_cuda.h"

namespace voxconv {

inline constexpr int kMoveBlock = 256;

// A block of a movement kernel: threadIdx.x runs over the threads of a row, threadIdx.y over rows.
struct MoveLaunch {
  dim3 grid, block;
  size_t shared_bytes = 0;
};

// For slices of `offsets` offsets of a range of `windows`, in `slices` grid layers.
inline MoveLaunch LaunchOf(const MoveShape& shape, int windows, int offsets, int slices) {
  constexpr int64_t kListEntries = 2048;  // of a block, where it is not to be less than a warp
  constexpr int64_t kWarp = 32;
  const int64_t along = std::min<int64_t>(shape.threads, kMoveBlock);
  const int64_t rows =
      std::max(std::min(kMoveBlock / along, kListEntries / offsets), CeilDiv(kWarp, along));
  MoveLaunch launch;
  launch.block = dim3(static_cast<unsigned>(along), static_cast<unsigned>(rows));
  launch.grid = GridFor(shape.rows, static_cast<int>(rows));
  launch.grid.y = static_cast<unsigned>(slices);
  launch.shared_bytes =
      windows * sizeof(DeviceWindow) + rows * (offsets * sizeof(int64_t) + sizeof(int32_t));
  return launch;
}

// What the threads of a block have found out about the map before they move anything: of each of
// the block's rows the buffer rows of its pairs, ascending by offset. A warp reads a row's entries
// at once, whatever the number of threads that move the row.
class BlockPairs {
 public:
  // `memory`: LaunchOf().shared_bytes.
  __device__ BlockPairs(const WindowRange& range, int begin, int end, char* memory)
      : first_(range.first),
        begin_(begin),
        end_(end),
        windows_(reinterpret_cast<DeviceWindow*>(memory)),
        buffer_rows_(reinterpret_cast<int64_t*>(windows_ + range.count)),
        counts_(reinterpret_cast<int32_t*>(buffer_rows_ + (end - begin) * int64_t{blockDim.y})) {
    const int step = static_cast<int>(blockDim.x * blockDim.y);
    for (int i = Thread(); i < range.count; i += step) windows_[i] = range.windows[i];
    __syncthreads();
  }

  // Whether there is anything to find; the same for all threads.
  __device__ bool Any() const {
    for (int i = begin_; i < end_; ++i) {
      if (windows_[i].begin < windows_[i].end) return true;
    }
    return false;
  }

  // All threads of the block take part.
  template <typename Rows>
  __device__ void Find(const Rows& rows, int64_t first_row, int64_t num_rows) {
    if (end_ - begin_ == 1) {
      const int r = Thread();
      if (r < static_cast<int>(blockDim.y) && first_row + r < num_rows) {
        FindOne(rows, first_row + r, r);
      }
    } else {
      const int warps = static_cast<int>(blockDim.x * blockDim.y) / 32;  // the full ones
      const int warp = Thread() / 32;
      for (int r = warp; warp < warps && r < static_cast<int>(blockDim.y); r += warps) {
        if (first_row + r < num_rows) FindAll(rows, first_row + r, r);
      }
    }
    __syncthreads();
  }

  // Of the block's row r.
  __device__ int count(int r) const { return counts_[r]; }
  __device__ const int64_t* buffer_rows(int r) const { return buffer_rows_ + r * (end_ - begin_); }

 private:
  static __device__ int Thread() {
    return static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  }

  // Appends the lanes' finds, in lane order, to the list of row r, which has `count`.
  __device__ int Append(int r, int count, bool found, int64_t buffer_row) {
    const unsigned all = __ballot_sync(0xffffffffu, found);
    const unsigned before = all & ((1u << (Thread() & 31)) - 1);
    if (found) buffer_rows_[r * (end_ - begin_) + count + __popc(before)] = buffer_row;
    return count + __popc(all);
  }

  __device__ bool Contains(int s, int64_t position) const {
    return position >= windows_[s].begin && position < windows_[s].end;
  }

  __device__ void FindAll(const DeviceDenseRows& rows, int64_t row, int r) {
    const int32_t* entries = rows.table + row * rows.num_offsets + first_;
    int count = 0;
    for (int s0 = begin_; s0 < end_; s0 += 32) {
      const int s = s0 + (Thread() & 31);
      // The columns of offsets that are in other passes are not read.
      const bool used = s < end_ && windows_[s].begin < windows_[s].end;
      const int32_t position = used ? entries[s] : -1;
      const bool found = position >= 0 && Contains(s, position);
      count = Append(r, count, found, found ? position + windows_[s].shift : 0);
    }
    if ((Thread() & 31) == 0) counts_[r] = count;
  }

  __device__ void FindAll(const DeviceCodedRows& rows, int64_t row, int r) {
    const uint32_t scale = static_cast<uint32_t>(rows.num_offsets);
    const int64_t stop = rows.ptr[row + 1];
    int count = 0;
    for (int64_t first = rows.ptr[row]; first < stop; first += 32) {
      const int64_t i = first + (Thread() & 31);
      const uint32_t code = i < stop ? rows.codes[i] : 0;
      const uint32_t position = code / scale;
      const int s = static_cast<int>(code - position * scale) - first_;
      const bool found = i < stop && s >= begin_ && s < end_ && Contains(s, position);
      count = Append(r, count, found, found ? position + windows_[s].shift : 0);
    }
    if ((Thread() & 31) == 0) counts_[r] = count;
  }

  // A slice of one offset: a thread a row.
  __device__ void FindOne(const DeviceDenseRows& rows, int64_t row, int r) {
    const int32_t position = rows.table[row * rows.num_offsets + first_ + begin_];
    counts_[r] = position >= 0 && Contains(begin_, position);
    buffer_rows_[r] = position + windows_[begin_].shift;
  }
  __device__ void FindOne(const DeviceCodedRows& rows, int64_t row, int r) {
    const uint32_t scale = static_cast<uint32_t>(rows.num_offsets);
    const uint32_t offset = static_cast<uint32_t>(first_ + begin_);
    counts_[r] = 0;
    for (int64_t i = rows.ptr[row]; i < rows.ptr[row + 1]; ++i) {
      const uint32_t position = rows.codes[i] / scale;
      if (rows.codes[i] - position * scale != offset) continue;
      counts_[r] = Contains(begin_, position);
      buffer_rows_[r] = position + windows_[begin_].shift;
    }
  }

  const int first_, begin_, end_;
  DeviceWindow* const windows_;  // of the range: in shared memory threads may read any at once
  int64_t* const buffer_rows_;   // [rows of the block][offsets of the slice]
  int32_t* const counts_;        // [rows of the block]
};

// body(Constant<n>) with the least n of 1, 2, 4 and 8 registers that hold a thread's vectors, or
// with kVectorsInFlight.
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
