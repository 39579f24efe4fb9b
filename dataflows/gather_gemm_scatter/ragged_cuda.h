// SPDX-License-Identifier: Apache-2.0
// The ragged product: the rows of all offsets by their matrices, in one launch (PCEngine as
// released).
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_RAGGED_CUDA_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_RAGGED_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/types.h"
#include "voxconv/dataflows/gather_gemm_scatter/grouping.h"

namespace voxconv {

// Whose rows each block of kRaggedRows rows has. A kernel takes them by value.
struct RaggedSegments {
  static constexpr int kMax = 96;

  int32_t count = 0;
  int32_t offset[kMax];            // kernel offset of each segment
  int32_t first_block[kMax + 1];   // the last is the number of blocks
  int64_t begin[kMax], end[kMax];  // rows of the buffers
};

// All pointers are to device memory of the caller. The dtype is StorageOf(precision).
struct RaggedOperands {
  const void* rows = nullptr;     // [buffer rows, c_in]
  const void* weights = nullptr;  // [K, c_in, c_out]
  void* products = nullptr;       // [buffer rows, c_out]
  int64_t c_in = 0, c_out = 0;
  Precision precision =
      Precision::kF32;  // f32: IEEE; others: tensor cores from 8.0 on, sums in f32
};

// products[i] = rows[i] * weights[offset] for the rows of every segment. Deterministic. Queues one
// launch on the context's stream, and does not synchronise it.
absl::Status RaggedProductCuda(const RaggedSegments& segments, const RaggedOperands& operands,
                               const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_RAGGED_CUDA_H_
