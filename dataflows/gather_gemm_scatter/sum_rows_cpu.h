#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_SUM_ROWS_CPU_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_SUM_ROWS_CPU_H_

#include <cstdint>

#include "absl/types/span.h"

namespace voxconv {

// out[c] = (accumulate ? out[c] : 0) + rows[0][c] + rows[1][c] + ... for c < channels, added from
// left to right in registers. `out` overlaps no row.
void SumRows(absl::Span<const float* const> rows, bool accumulate, int64_t channels, float* out);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_SUM_ROWS_CPU_H_
