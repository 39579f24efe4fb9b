// SPDX-License-Identifier: Apache-2.0
// Pooling of columns on CUDA. Work is queued on the context's stream. Nothing is synchronised.
#ifndef VOXCONV_DATAFLOWS_HASH2COL_POOL_COLUMNS_CUDA_H_
#define VOXCONV_DATAFLOWS_HASH2COL_POOL_COLUMNS_CUDA_H_

#include "absl/status/status.h"
#include "voxconv/core/backend.h"
#include "voxconv/dataflows/hash2col/hash2col.h"

namespace voxconv {

// A thread adds or compares all parts of its elements, in the order of the offsets. One launch.
// O(rows * K * channels).
absl::Status PoolColumnsCuda(const ColumnPool& pool, const ExecutionContext& context);
// One launch. O(rows * K * channels).
absl::Status SpreadColumnsCuda(const ColumnSpread& spread, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_HASH2COL_POOL_COLUMNS_CUDA_H_
