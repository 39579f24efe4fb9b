// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/coordinate_rows.cuh"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/split_coordinates.h"

namespace voxconv {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    SplitKernel(const InterleavedRows rows, int64_t size, int32_t* planes) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= size) return;
  const Coordinate c = LoadRow(rows, i);
  planes[i] = c.b;
  planes[size + i] = c.x;
  planes[2 * size + i] = c.y;
  planes[3 * size + i] = c.z;
}

}  // namespace

absl::StatusOr<Array<int32_t>> SplitCoordinatesCuda(const Array<Coordinate>& rows,
                                                    const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> planes, AllocateArray<int32_t>(4 * rows.size(), context));
  VOXCONV_LAUNCH(SplitKernel, GridFor(rows.size(), kThreads), kThreads, 0, context,
                 InterleavedRows{rows.data()}, rows.size(), planes.data());
  return planes;
}

}  // namespace voxconv
