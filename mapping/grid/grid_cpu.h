// The CPU storages of the grid mapping.
#ifndef VOXCONV_MAPPING_GRID_GRID_CPU_H_
#define VOXCONV_MAPPING_GRID_GRID_CPU_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/coordinate_rows.h"
#include "core/mapping.h"

namespace voxconv {

// A grid over the bounds of the inputs it was built of; immutable, host memory.
class GridCpu : public MapIndex {
 public:
  // All lookups of one problem, whose outputs are read from `outputs`: O(K N_out), and O(extent of
  // the outputs) scratch.
  virtual absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows& outputs,
                                          bool symmetric,
                                          const ExecutionContext& context) const = 0;
};

using GridCpuPtr = std::unique_ptr<GridCpu>;

// One int32 a cell. kResourceExhausted, with the size needed, past `limit_mib` MiB of index.
absl::StatusOr<GridCpuPtr> BuildDenseGridCpu(const CoordinateRows& inputs, int64_t limit_mib,
                                             const ExecutionContext& context);
// One bit a cell, a 32-bit rank for 64 of them, and 4 bytes a row. Takes interleaved rows only.
absl::StatusOr<GridCpuPtr> BuildBitmapGridCpu(const CoordinateSet& inputs, int64_t limit_mib,
                                              const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_GRID_GRID_CPU_H_
