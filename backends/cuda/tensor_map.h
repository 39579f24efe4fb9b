// SPDX-License-Identifier: Apache-2.0
// Descriptions of arrays for the tensor memory accelerator (compute capability 9.0 and later).
#ifndef VOXCONV_BACKENDS_CUDA_TENSOR_MAP_H_
#define VOXCONV_BACKENDS_CUDA_TENSOR_MAP_H_

#include <cuda.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace voxconv {

// Describes how kernels copy boxes of an array to shared memory. The array is [groups, rows,
// columns] with elements of `element_bytes` bytes, 2 or 4, at `data` in device memory. A box has
// `box_rows` rows, at most 256, of 128 bytes. Its rows are swizzled by 128 bytes in shared memory.
// Elements past the array's ends become 0. `data` and columns * element_bytes must be multiples of
// 16. This function reads nothing of the array, which must live as long as kernels use the result.
// It queues no work, and takes about a microsecond. kUnimplemented if the driver has no tensor
// maps.
absl::StatusOr<CUtensorMap> DescribeBoxes(const void* data, int64_t groups, int64_t rows,
                                          int64_t columns, int element_bytes, int box_rows);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_TENSOR_MAP_H_
