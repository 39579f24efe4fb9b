// SPDX-License-Identifier: Apache-2.0
// col2hash on CUDA. Work is queued on the context's stream. Nothing is synchronised. Matrices are
// in device memory, contiguous.
#ifndef VOXCONV_DATAFLOWS_HASH2COL_COL2HASH_CUDA_H_
#define VOXCONV_DATAFLOWS_HASH2COL_COL2HASH_CUDA_H_

#include "absl/status/status.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/tensor.h"
#include "voxconv/dataflows/hash2col/hash2col.h"

namespace voxconv {

// H-CNN Algorithm 2, without atomics: a thread adds all parts of its elements. One launch.
// O(rows * K * channels).
absl::Status SumColumnsCuda(const ColumnSum& sum, const ExecutionContext& context);

// unrolled[i, k * C_out + c] = weights[k * C_in + i, c]: the matrices of all offsets side by side.
// weights: [K * C_in, C_out]. One launch. O(elements).
absl::Status UnrollWeightsCuda(const ConstTensorView& weights, int num_offsets, void* unrolled,
                               const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_HASH2COL_COL2HASH_CUDA_H_
