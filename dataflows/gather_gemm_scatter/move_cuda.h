// The kernels that move features between their matrices and the buffers.
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MOVE_CUDA_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MOVE_CUDA_H_

#include <cstdint>
#include <variant>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/backend.h"
#include "core/types.h"
#include "dataflows/gather_gemm_scatter/schedule.h"

namespace voxconv {

// The map of one side, inputs or outputs, as the kernels read it (see DenseTables, CodedCsr).
struct DeviceDenseRows {
  const int32_t* table;
  int num_offsets;
};
struct DeviceCodedRows {
  const int64_t* ptr;
  const uint32_t* codes;
  int num_offsets;
};
using DeviceRows = std::variant<DeviceDenseRows, DeviceCodedRows>;

// A PairWindow as the kernels read it: position p in [begin, end) is buffer row p + shift.
struct DeviceWindow {
  int32_t begin = 0, end = 0;
  int64_t shift = 0;
};

// Windows of offsets [first, first + count): a launch's, passed by value.
inline constexpr int kMaxOffsetsPerLaunch = 128;
struct WindowRange {
  int first = 0, count = 0;
  DeviceWindow windows[kMaxOffsetsPerLaunch];
};

// How a row of features is divided among threads: thread t of `threads` moves vectors t,
// t + threads, t + 2 threads, ..., so that neighbouring threads touch neighbouring addresses, and
// kVectorsInFlight of them at a time, in registers. The row's map entries are read once, by a warp
// for all of the row's threads.
inline constexpr int kVectorsInFlight = 8;
struct MoveShape {
  int64_t rows = 0;      // of features
  int vector_bytes = 0;  // 2, 4, 8 or 16
  int64_t vectors = 0;   // of a row
  int64_t threads = 0;   // of a row

  int64_t vectors_per_thread() const { return (vectors + threads - 1) / threads; }
};

// Copies every row of `input` with a pair in the windows to its places in `buffer`. A block of
// threads does its rows for all offsets, or where `by_offset`, for one.
absl::Status GatherCuda(const DeviceRows& rows, const void* input, void* buffer,
                        const MoveShape& shape, const WindowRange& range, bool by_offset,
                        const ExecutionContext& context);

// Where a scatter finds the sum so far and leaves its own. Each may be the same memory.
struct ScatterSums {
  const void* from_output = nullptr;        // in the features' dtype, or
  const float* from_accumulator = nullptr;  // in f32, or both null: zero
  void* to_output = nullptr;                // rounded to the features' dtype, or
  float* to_accumulator = nullptr;          // in f32

  bool InPlace() const { return from_output == to_output && from_accumulator == to_accumulator; }
};

// Adds to every output row's sum its partial products in the windows, by ascending offset, in f32.
// Rows without any are copied from there to here, or left alone in place.
absl::Status ScatterCuda(const DeviceRows& rows, const void* partial_products, DType dtype,
                         const ScatterSums& sums, const MoveShape& shape, const WindowRange& range,
                         const ExecutionContext& context);

// Fills buffer rows of `row_bytes` with zeros.
absl::Status ClearPaddingCuda(absl::Span<const PaddingRun> runs, int64_t row_bytes, void* buffer,
                              const ExecutionContext& context);

// to[i] = from[matrices[i]], matrices of `matrix_bytes`.
absl::Status CopyMatricesCuda(absl::Span<const int> matrices, int64_t matrix_bytes,
                              const void* from, void* to, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_MOVE_CUDA_H_
