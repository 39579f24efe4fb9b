// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/weight_gradient_kernel.cuh"

namespace voxconv {

std::unique_ptr<const RangeSums> RangeSumsF32(int64_t c_in, int64_t c_out, bool vector) {
  return range_sums::MakeRangeSums<range_sums::FullFloat>(c_in, c_out, vector);
}

}  // namespace voxconv
