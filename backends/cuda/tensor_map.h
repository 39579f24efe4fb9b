// SPDX-License-Identifier: Apache-2.0
// Descriptions of arrays for the tensor memory accelerator (compute capability 9.0 and later).
#ifndef VOXCONV_BACKENDS_CUDA_TENSOR_MAP_H_
#define VOXCONV_BACKENDS_CUDA_TENSOR_MAP_H_

#include <cuda.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace voxconv {

// Describes how kernels copy boxes of an array to shared memory. The array is [groups, rows,
// columns] with elements of 2 bytes, at `data` in device memory. A box has `box_rows` rows of 64
// elements. Each of its rows takes 128 bytes of shared memory, swizzled by 128 bytes. Elements past
// the array's ends become 0. `data` and columns * 2 must be multiples of 16. This function reads
// nothing of the array, which must live as long as kernels use the result. It queues no work, and
// takes about a microsecond. kUnimplemented if the driver has no tensor maps.
absl::StatusOr<CUtensorMap> DescribeBoxes(const void* data, int64_t groups, int64_t rows,
                                          int64_t columns, int box_rows);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_TENSOR_MAP_H_
