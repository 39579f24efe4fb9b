// SPDX-License-Identifier: Apache-2.0
// Checks coordinates where they are. core/voxel_ops.h says what the function does.
#ifndef VOXCONV_BACKENDS_CUDA_CHECK_COORDINATES_H_
#define VOXCONV_BACKENDS_CUDA_CHECK_COORDINATES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "voxconv/core/coordinate_set.h"

namespace voxconv {

// A fill, a launch and a copy of 36 bytes, for which the host waits. Takes 16 to 32 bytes of
// temporary memory for each row. Rows that are refused are copied to the host, which finds the
// message.
absl::StatusOr<CoordinateSetPtr> CudaAdmitCoordinates(const Coordinate* rows, int64_t size,
                                                      const Int3& tensor_stride,
                                                      const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CHECK_COORDINATES_H_
