// SPDX-License-Identifier: Apache-2.0
// MaskOrder::kRarest on the host (mask_order.h).
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_RAREST_ORDER_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_RAREST_ORDER_H_

#include <cstdint>

namespace voxconv {

// Writes the RarestKey of each row to keys[row], [rows]. `masks` is [rows, words], with one bit for
// each of `num_offsets` offsets. All memory is the host's and the caller's. This function never
// fails. O(rows + pairs), and O(num_offsets^2 log num_offsets) for the ranks.
void MakeRarestKeys(const uint32_t* masks, int64_t rows, int words, int num_offsets,
                    uint64_t* keys);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_RAREST_ORDER_H_
