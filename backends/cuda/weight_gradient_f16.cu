// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/weight_gradient_kernel.cuh"

namespace voxconv {

std::unique_ptr<const RangeSums> RangeSumsF16(int64_t c_in, int64_t c_out, bool vector) {
  return range_sums::MakeRangeSums<__half>(c_in, c_out, vector);
}

}  // namespace voxconv
