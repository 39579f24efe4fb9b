// SPDX-License-Identifier: Apache-2.0
// The CUDA storages of the grid mapping.
#ifndef VOXCONV_MAPPING_GRID_GRID_CUDA_H_
#define VOXCONV_MAPPING_GRID_GRID_CUDA_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "voxconv/core/coordinate_rows.h"
#include "voxconv/core/mapping.h"

namespace voxconv {

// A grid over the bounds of the inputs that it was built from. It is immutable and lies in device
// memory.
class GridCuda : public MapIndex {
 public:
  // Makes all lookups of one problem and returns a neighbour table with masks. It reads the output
  // rows from `outputs`. O(K N_out).
  virtual absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows& outputs,
                                          bool symmetric,
                                          const ExecutionContext& context) const = 0;
};

using GridCudaPtr = std::unique_ptr<GridCuda>;

// The same storages as on the CPU (mapping/grid/grid_cpu.h), of the same size. These functions
// clear every cell: O(cells + N).
// `scalar`: kernels read rows number by number (ScalarRows).
absl::StatusOr<GridCudaPtr> BuildDenseGridCuda(const CoordinateRows& inputs, int64_t limit_mib,
                                               bool scalar, const ExecutionContext& context);
absl::StatusOr<GridCudaPtr> BuildBitmapGridCuda(const CoordinateSet& inputs, int64_t limit_mib,
                                                const ExecutionContext& context);

// As on the CPU.
GridCudaPtr MakeRulesGridCuda(int64_t limit_mib);
GridCudaPtr MakeTwoStageGridCuda(const CoordinateRows& inputs, int64_t limit_mib, bool scalar);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_GRID_GRID_CUDA_H_
