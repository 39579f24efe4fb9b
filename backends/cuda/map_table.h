// SPDX-License-Identifier: Apache-2.0
// Tables with an entry for each row and kernel offset, in device memory, and how pairs are written
// into them.
#ifndef VOXCONV_BACKENDS_CUDA_MAP_TABLE_H_
#define VOXCONV_BACKENDS_CUDA_MAP_TABLE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/kernel_map.h"

namespace voxconv {

// [rows, num_offsets], all entries -1, row-major. Queued on the context's stream; does not
// synchronise it. O(rows * num_offsets). kInvalidArgument for a table past 2^63 bytes;
// kResourceExhausted without memory.
absl::StatusOr<Array<int32_t>> EmptyTableCuda(int64_t rows, int num_offsets,
                                              const ExecutionContext& context);

// The pairs of a map as kernels take them. All pointers are to device memory.
struct PairsView {
  const int32_t* in;          // [size]
  const int32_t* out;         // [size]
  const int64_t* offset_ptr;  // [num_offsets + 1]
  int64_t size;
  int num_offsets;
};

// Owns the copy of a map's offset_ptr that kernels read. Refers to the map's arrays, which must
// outlive it. Make one for all tables of a map, since each one copies offset_ptr to the device.
class DevicePairs {
 public:
  // `map` is of the form kPairs (checked). Copies (K + 1) * 8 bytes from the host.
  static absl::StatusOr<DevicePairs> Create(const KernelMap& map, const ExecutionContext& context);
  const PairsView& view() const { return view_; }

 private:
  Array<int64_t> offset_ptr_;
  PairsView view_{};
};

// A table, [rows, K], with table[row[i] * K + k] = value[i] for each pair i of each offset k, and
// -1 elsewhere. With `value` null the entry is i, the position of the pair, which must fit int32.
// `row` and `value` are device arrays with an entry for each pair, such as view().out and
// view().in. Queued on the context's stream; does not synchronise it. O(rows * K + pairs * log K).
// Errors of EmptyTableCuda.
absl::StatusOr<Array<int32_t>> TableOfPairs(const DevicePairs& pairs, const int32_t* row,
                                            const int32_t* value, int64_t rows,
                                            const ExecutionContext& context);

// Pairs as a table of input rows by output row, [N_out, K], and as a table of output rows by input
// row, [N_in, K]. `map` is of the form kPairs. Otherwise as TableOfPairs.
absl::StatusOr<Array<int32_t>> OutputTable(const KernelMap& map, const ExecutionContext& context);
absl::StatusOr<Array<int32_t>> InputTable(const KernelMap& map, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_MAP_TABLE_H_
