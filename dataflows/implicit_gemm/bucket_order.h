// SPDX-License-Identifier: Apache-2.0
// Orders of output rows (mask_order.h) by a counting sort. The functions queue their work on the
// context's stream and do not synchronise it. kResourceExhausted if the temporary memory cannot be
// had.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BUCKET_ORDER_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BUCKET_ORDER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/core/backend.h"
#include "voxconv/dataflows/implicit_gemm/mask_order.h"

namespace voxconv {

// Writes order[i], [rows] in device memory: the i-th row by RarestKey. Rows of equal keys keep
// their order. `words` is [rows, num_words] in device memory, with one bit for each of `num_bits`
// offsets. O(rows + pairs). From 32 offsets on, a radix sort is used.
absl::Status OrderByRarest(const uint32_t* words, int64_t rows, int num_words, int num_bits,
                           int32_t* order, const ExecutionContext& context);

// As above, but sorts by the mask itself. Masks have one word and at most kMaxShortMaskBits bits.
inline constexpr int kMaxShortMaskBits = 9;
absl::Status OrderByShortMask(const uint32_t* words, int64_t rows, int num_bits, int32_t* order,
                              const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BUCKET_ORDER_H_
