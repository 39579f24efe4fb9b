// Rows of a coordinate set, loaded as their layout allows. For .cu files.
#ifndef VOXCONV_BACKENDS_CUDA_COORDINATE_ROWS_CUH_
#define VOXCONV_BACKENDS_CUDA_COORDINATE_ROWS_CUH_

#include <cstdint>

#include "core/coordinate_rows.h"

namespace voxconv {

// One 16-byte load: rows are aligned to their size.
__device__ inline Coordinate LoadRow(const InterleavedRows& rows, int64_t i) {
  const int4 c = __ldg(reinterpret_cast<const int4*>(rows.rows) + i);
  return {c.x, c.y, c.z, c.w};
}

// Four loads, each of a warp's rows in one line of memory.
__device__ inline Coordinate LoadRow(const PlanarRows& rows, int64_t i) {
  const int32_t* const b = rows.values + i;
  return {__ldg(b), __ldg(b + rows.size), __ldg(b + 2 * rows.size), __ldg(b + 3 * rows.size)};
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_COORDINATE_ROWS_CUH_
