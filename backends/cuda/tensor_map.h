// Descriptions of arrays for the tensor memory accelerator (compute capability 9.0 and later).
#ifndef VOXCONV_BACKENDS_CUDA_TENSOR_MAP_H_
#define VOXCONV_BACKENDS_CUDA_TENSOR_MAP_H_

#include <cuda.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace voxconv {

// Boxes of 64 x `box_rows` elements of 2 bytes out of [groups, rows, columns] at `data` in device
// memory, each row of a box in 128 bytes of shared memory, swizzled by 128 bytes; zeros past the
// array's ends. `data` and columns * 2 are multiples of 16 bytes. Only describes: nothing is read,
// `data` must live as long as kernels use the map. Host work alone, about a microsecond.
// kUnimplemented where the driver knows no tensor maps.
absl::StatusOr<CUtensorMap> DescribeBoxes(const void* data, int64_t groups, int64_t rows,
                                          int64_t columns, int box_rows);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_TENSOR_MAP_H_
