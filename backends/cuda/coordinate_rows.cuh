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

// Interleaved rows that are read number by number, as by code that has four arguments: four loads
// of 4 bytes, in each of which the rows of a warp lie 16 bytes apart. What Luo and Lai compare
// planar rows with (Section III-A).
struct ScalarRows {
  const Coordinate* rows;
};
__device__ inline Coordinate LoadRow(const ScalarRows& rows, int64_t i) {
  const auto* const from = reinterpret_cast<const int32_t*>(rows.rows + i);
  int32_t c[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    // The compiler may join other loads to one of 16 bytes.
    asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(c[j]) : "l"(from + j));
  }
  return {c[0], c[1], c[2], c[3]};
}

// CoordinateRows::Visit, for kernels: `scalar` gives ScalarRows in the place of interleaved ones.
template <typename Visitor>
auto VisitRows(const CoordinateRows& rows, bool scalar, const Visitor& visitor) {
  if (scalar) return visitor(ScalarRows{rows.set().rows().data()});
  return rows.Visit(visitor);
}

// Four loads. In each, the rows of a warp lie next to each other.
__device__ inline Coordinate LoadRow(const PlanarRows& rows, int64_t i) {
  const int32_t* const b = rows.values + i;
  return {__ldg(b), __ldg(b + rows.size), __ldg(b + 2 * rows.size), __ldg(b + 3 * rows.size)};
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_COORDINATE_ROWS_CUH_
