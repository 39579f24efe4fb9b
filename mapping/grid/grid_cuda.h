// The CUDA storages of the grid mapping.
#ifndef VOXCONV_MAPPING_GRID_GRID_CUDA_H_
#define VOXCONV_MAPPING_GRID_GRID_CUDA_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/coordinate_rows.h"
#include "core/mapping.h"

namespace voxconv {

// A grid over the bounds of the inputs it was built of; immutable, device memory.
class GridCuda : public MapIndex {
 public:
  // All lookups of one problem, whose outputs are read from `outputs`, as a neighbour table with
  // masks. O(K N_out).
  virtual absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows& outputs,
                                          bool symmetric,
                                          const ExecutionContext& context) const = 0;
};

using GridCudaPtr = std::unique_ptr<GridCuda>;

// As the CPU's (mapping/grid/grid_cpu.h), of the same size. Every cell is cleared, whatever the
// number of rows: O(cells) beside O(N).
absl::StatusOr<GridCudaPtr> BuildDenseGridCuda(const CoordinateRows& inputs, int64_t limit_mib,
                                               const ExecutionContext& context);
absl::StatusOr<GridCudaPtr> BuildBitmapGridCuda(const CoordinateSet& inputs, int64_t limit_mib,
                                                const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_GRID_GRID_CUDA_H_
