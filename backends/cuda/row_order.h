// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_BACKENDS_CUDA_ROW_ORDER_H_
#define VOXCONV_BACKENDS_CUDA_ROW_ORDER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/coordinate_set.h"

namespace voxconv {

// rows[i]: the row of the i-th voxel in the order of keys, for i < set.size(). Both are in device
// memory. Sorts the numbers of the voxels' cells in the bounding box (SortByKey), which have fewer
// bits than keys. Queues its work on the context's stream and does not synchronise it.
// kResourceExhausted if the memory for numbers and sort does not suffice.
absl::Status OrderRows(const CoordinateSet& set, int32_t* rows, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_ROW_ORDER_H_
