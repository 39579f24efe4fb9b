// SPDX-License-Identifier: Apache-2.0
// Tables with an entry for each row and kernel offset.
#ifndef VOXCONV_BACKENDS_CPU_MAP_TABLE_H_
#define VOXCONV_BACKENDS_CPU_MAP_TABLE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"

namespace voxconv {

// [rows, num_offsets], all entries -1, in host memory. O(rows * num_offsets), on the context's
// threads. kInvalidArgument for a table past 2^63 bytes; kResourceExhausted without memory.
absl::StatusOr<Array<int32_t>> EmptyTable(int64_t rows, int num_offsets,
                                          const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_MAP_TABLE_H_
