// SPDX-License-Identifier: Apache-2.0
// The kernels that move features between their matrices and the buffers.
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MOVE_CUDA_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MOVE_CUDA_H_

#include <cstdint>
#include <variant>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/types.h"
#include "voxconv/dataflows/gather_gemm_scatter/schedule.h"

namespace voxconv {

// The map of one side (inputs or outputs) as the kernels read it. The arrays lie in device memory
// and belong to DenseTables or CodedCsr.
struct DeviceDenseRows {
  const int32_t* table;
  int num_offsets;
};
struct DeviceCodedRows {
  const int32_t* ptr;
  const uint32_t* codes;
  int num_offsets;
};
using DeviceRows = std::variant<DeviceDenseRows, DeviceCodedRows>;

// A PairWindow as the kernels read it. The pair at position p in [begin, end) has buffer row
// p + shift.
struct DeviceWindow {
  int32_t begin = 0, end = 0;
  int64_t shift = 0;
};

// The windows of the offsets [first, first + count) of one launch. Kernels take them by value.
inline constexpr int kMaxOffsetsPerLaunch = 128;
struct WindowRange {
  int first = 0, count = 0;
  DeviceWindow windows[kMaxOffsetsPerLaunch];
};

// How threads share the move of a row of features. Thread t of `threads` moves the vectors t,
// t + threads, t + 2 threads, ..., so that neighbouring threads touch neighbouring addresses. A
// thread holds up to kVectorsInFlight vectors in registers at a time. One warp reads the row's map
// entries once, for all threads of the row.
inline constexpr int kVectorsInFlight = 8;
struct MoveShape {
  int64_t rows = 0;      // of features
  int vector_bytes = 0;  // 2, 4, 8 or 16
  int64_t vectors = 0;   // of a row
  int64_t threads = 0;   // of a row

  int64_t vectors_per_thread() const { return (vectors + threads - 1) / threads; }
};

// All functions below take device memory, queue their work on the context's stream and do not
// synchronise it.

// Copies every row of `input` that has pairs in the windows to the buffer rows of these pairs. A
// block of threads moves its rows for all offsets. If `by_offset` is set, it moves them for one.
absl::Status GatherCuda(const DeviceRows& rows, const void* input, void* buffer,
                        const MoveShape& shape, const WindowRange& range, bool by_offset,
                        const ExecutionContext& context);

// Where a scatter reads the sum so far, and where it writes the new sum. Both may be the same
// memory. At most one `from_` pointer and exactly one `to_` pointer are set. If no `from_` pointer
// is set, the sum so far is zero.
struct ScatterSums {
  const void* from_output = nullptr;        // in the features' dtype
  const float* from_accumulator = nullptr;  // in f32
  void* to_output = nullptr;                // rounded to the features' dtype
  float* to_accumulator = nullptr;          // in f32

  bool InPlace() const { return from_output == to_output && from_accumulator == to_accumulator; }
};

// Adds the partial products in the windows to the sum of every output row. It adds in f32, by
// ascending offset. It copies the sum of a row without partial products. If the sums are in place,
// it does not touch such a row.
absl::Status ScatterCuda(const DeviceRows& rows, const void* partial_products, DType dtype,
                         const ScatterSums& sums, const MoveShape& shape, const WindowRange& range,
                         const ExecutionContext& context);

// The same two moves by Minuet's Algorithm 1: each thread reads the map for its tile of channels.
absl::Status TileGatherCuda(const DeviceRows& rows, const void* input, void* buffer,
                            const MoveShape& shape, const WindowRange& range,
                            const ExecutionContext& context);
absl::Status TileScatterCuda(const DeviceRows& rows, const void* partial_products, DType dtype,
                             const ScatterSums& sums, const MoveShape& shape,
                             const WindowRange& range, const ExecutionContext& context);

// Adds the partial products in the windows to `sums`, [rows, channels] in f32, atomically, with one
// launch for all offsets. The order of additions varies.
absl::Status AtomicScatterCuda(const DeviceRows& rows, const void* partial_products, DType dtype,
                               float* sums, const MoveShape& shape, const WindowRange& range,
                               const ExecutionContext& context);

// Fills the buffer rows of `runs` with zeros. A row has `row_bytes` bytes.
absl::Status ClearPaddingCuda(absl::Span<const PaddingRun> runs, int64_t row_bytes, void* buffer,
                              const ExecutionContext& context);

// Copies matrix matrices[i] of `from` to matrix i of `to`. A matrix has `matrix_bytes` bytes.
absl::Status CopyMatricesCuda(absl::Span<const int> matrices, int64_t matrix_bytes,
                              const void* from, void* to, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MOVE_CUDA_H_
