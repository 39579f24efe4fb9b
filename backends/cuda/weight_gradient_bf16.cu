// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/weight_gradient_kernel.cuh"
#include "voxconv/backends/cuda/weight_gradient_warpgroup.cuh"

namespace voxconv {

std::unique_ptr<const RangeSums> RangeSumsBf16(int64_t c_in, int64_t c_out, bool vector,
                                               bool warpgroups) {
  if (vector && warpgroups && range_sums::FillsWarpgroups(c_in, c_out)) {
    return range_sums::MakeWarpgroupRangeSums<__nv_bfloat16>(c_in, c_out);
  }
  return range_sums::MakeRangeSums<__nv_bfloat16>(c_in, c_out, vector);
}

}  // namespace voxconv
