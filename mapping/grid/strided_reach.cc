// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/grid/strided_reach.h"

#include <algorithm>

namespace voxconv {

StridedReach::StridedReach(const ConvGeometry& geometry) {
  const Int3& kernel = geometry.params().kernel;
  for (int axis = 0; axis < 3; ++axis) {
    Axis& a = axes_[axis];
    a.count = kernel[axis];
    a.step = geometry.output_tensor_stride()[axis];
    a.first = geometry.InputOffset(0)[axis];
    // The offset after the first along this axis, in the geometry's order: z fastest.
    const int next = axis == 2 ? 1 : axis == 1 ? kernel.z : kernel.y * kernel.z;
    a.increment = a.count > 1 ? geometry.InputOffset(next)[axis] - a.first : 0;
    // Inputs are multiples of their stride. Whether p - d is one of the step depends on p modulo
    // it.
    int64_t most = 0;
    for (int32_t p = 0; p < a.step; p += geometry.input_tensor_stride()[axis]) {
      int64_t outputs = 0;
      for (int32_t i = 0; i < a.count; ++i) outputs += (p - a.Offset(i)) % a.step == 0;
      most = std::max(most, outputs);
    }
    max_outputs_ *= most;
  }
}

}  // namespace voxconv
