// SPDX-License-Identifier: Apache-2.0
// TorchSparse's Algorithm 3, lines 3 to 6, in registers. Only .cu files include this header.
#ifndef VOXCONV_MAPPING_OUTPUT_COORDS_EACH_OUTPUT_CUDA_CUH_
#define VOXCONV_MAPPING_OUTPUT_COORDS_EACH_OUTPUT_CUDA_CUH_

#include <cstdint>

#include "voxconv/core/coordinate_key.h"
#include "voxconv/mapping/output_coords/expansion_level_cuda.h"

namespace voxconv {

// Calls visit(q) for all outputs q of input row `row`; notes the row if one is outside the range.
template <typename Visit>
__device__ void EachOutput(const ExpansionLevelCuda& level, int64_t row, const Visit& visit) {
  const Coordinate p = level.inputs.rows[row];
  const auto& [x, y, z, may_leave_range] = level.rule;
  for (int32_t i = 0; i < x.count; ++i) {
    const int32_t qx = x.Candidate(p.x, i);
    if (!x.OnLattice(qx) || !x.WithinLimits(qx)) continue;
    for (int32_t j = 0; j < y.count; ++j) {
      const int32_t qy = y.Candidate(p.y, j);
      if (!y.OnLattice(qy) || !y.WithinLimits(qy)) continue;
      for (int32_t k = 0; k < z.count; ++k) {
        const int32_t qz = z.Candidate(p.z, k);
        if (!z.OnLattice(qz) || !z.WithinLimits(qz)) continue;
        if (may_leave_range && !InRange(Int3{qx, qy, qz})) {
          atomicMin(&level.info->bad_row, static_cast<unsigned long long>(row));
          continue;
        }
        visit(Coordinate{p.b, qx, qy, qz});
      }
    }
  }
}

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OUTPUT_COORDS_EACH_OUTPUT_CUDA_CUH_
