// Orders of output rows (core/mask_order.h) that a counting sort finds. Queued on context.stream,
// never synchronised; kResourceExhausted where the temporary memory is not there.
#ifndef VOXCONV_BACKENDS_CUDA_BUCKET_ORDER_H_
#define VOXCONV_BACKENDS_CUDA_BUCKET_ORDER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/backend.h"
#include "core/mask_order.h"

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

#endif  // VOXCONV_BACKENDS_CUDA_BUCKET_ORDER_H_
