// Orders of output rows (mask_order.h) that a counting sort finds. Work is queued on the context's
// stream, which is not synchronised. kResourceExhausted where the temporary memory is not there.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BUCKET_ORDER_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BUCKET_ORDER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/backend.h"
#include "dataflows/implicit_gemm/mask_order.h"

namespace voxconv {

// order[i]: the i-th row by RarestKey, equal ones as given. `words` is [rows, num_words] in device
// memory, with `num_bits` offsets. O(rows + pairs), and a radix sort from 32 offsets on.
absl::Status OrderByRarest(const uint32_t* words, int64_t rows, int num_words, int num_bits,
                           int32_t* order, const ExecutionContext& context);

// The same by the mask itself, of one word.
inline constexpr int kMaxShortMaskBits = 9;
absl::Status OrderByShortMask(const uint32_t* words, int64_t rows, int num_bits, int32_t* order,
                              const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_BUCKET_ORDER_H_
