// SPDX-License-Identifier: Apache-2.0
// Which kernel offsets each row of a table has, as bits.
#ifndef VOXCONV_BACKENDS_CUDA_ROW_MASKS_H_
#define VOXCONV_BACKENDS_CUDA_ROW_MASKS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/kernel_map.h"

namespace voxconv {

// The masks of a map of the form kNeighbourTable (checked), laid out as NeighbourTable::masks is:
// those that the map carries, or made from its table. The map may be uncounted. Queued on the
// context's stream; does not synchronise it. O(N_out * K). kResourceExhausted without memory.
absl::StatusOr<SharedArray<uint32_t>> RowMasks(const KernelMap& table_map,
                                               const ExecutionContext& context);

// The offsets [first, last) of a table.
struct OffsetRange {
  int32_t first, last;
};

// Bit b of masks[row * words + w] = whether table[row * num_offsets + k] >= 0, k = first + 32 w +
// b; bits from `last` on are 0. `table` is [rows, num_offsets], `masks` [rows, words], both in
// device memory; `words` >= ceil((last - first) / 32). Queued on the context's stream; does not
// synchronise it. One launch. O(rows * (last - first)). The error of the launch.
absl::Status FillMasks(const int32_t* table, int64_t rows, int num_offsets, OffsetRange offsets,
                       int words, uint32_t* masks, const ExecutionContext& context);

// How many rows have each offset, [num_offsets] in device memory. `masks` is
// [rows, ceil(num_offsets / 32)] in device memory. Queued on the context's stream; does not
// synchronise it. O(rows * num_offsets). kResourceExhausted without memory.
absl::StatusOr<Array<int64_t>> CountMaskBits(const SharedArray<uint32_t>& masks, int64_t rows,
                                             int num_offsets, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_ROW_MASKS_H_
