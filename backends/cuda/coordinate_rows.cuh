// SPDX-License-Identifier: Apache-2.0
// Loads rows of a coordinate set in either layout. Only .cu files include this header.
#ifndef VOXCONV_BACKENDS_CUDA_COORDINATE_ROWS_CUH_
#define VOXCONV_BACKENDS_CUDA_COORDINATE_ROWS_CUH_

#include <cstdint>

#include "voxconv/core/coordinate_rows.h"

namespace voxconv {

// One 16-byte load, because rows are aligned to their size.
__device__ inline Coordinate LoadRow(const InterleavedRows& rows, int64_t i) {
  const int4 c = __ldg(reinterpret_cast<const int4*>(rows.rows) + i);
  return {c.x, c.y, c.z, c.w};
}

// Four loads. In each, the rows of a warp lie next to each other.
__device__ inline Coordinate LoadRow(const PlanarRows& rows, int64_t i) {
  const int32_t* const b = rows.values + i;
  return {__ldg(b), __ldg(b + rows.size), __ldg(b + 2 * rows.size), __ldg(b + 3 * rows.size)};
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_COORDINATE_ROWS_CUH_
