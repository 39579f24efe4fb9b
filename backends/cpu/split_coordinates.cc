// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/split_coordinates.h"

#include "voxconv/backends/cpu/parallel.h"

namespace voxconv {

absl::StatusOr<Array<int32_t>> SplitCoordinatesCpu(const Array<Coordinate>& rows,
                                                   const ExecutionContext& context) {
  constexpr int64_t kRowsPerTask = 65536;
  const int64_t size = rows.size();
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> planes, AllocateArray<int32_t>(4 * size, context));
  int32_t* const to = planes.data();
  const Coordinate* const from = rows.data();
  ParallelRanges(context, size, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      to[i] = from[i].b;
      to[size + i] = from[i].x;
      to[2 * size + i] = from[i].y;
      to[3 * size + i] = from[i].z;
    }
  });
  return planes;
}

}  // namespace voxconv
