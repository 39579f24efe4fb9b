// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_SUM_ROWS_CPU_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_SUM_ROWS_CPU_H_

#include <cstdint>

#include "absl/types/span.h"

namespace voxconv {

// Computes out[c] = (accumulate ? out[c] : 0) + rows[0][c] + rows[1][c] + ... for c < channels. It
// adds from left to right in registers. `out` must overlap no row. All memory is the host's and the
// caller's.
void SumRows(absl::Span<const float* const> rows, bool accumulate, int64_t channels, float* out);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_SUM_ROWS_CPU_H_
