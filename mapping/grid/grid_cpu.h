// SPDX-License-Identifier: Apache-2.0
// The CPU storages of the grid mapping.
#ifndef VOXCONV_MAPPING_GRID_GRID_CPU_H_
#define VOXCONV_MAPPING_GRID_GRID_CPU_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "voxconv/core/coordinate_rows.h"
#include "voxconv/core/mapping.h"

namespace voxconv {

// A grid over the bounds of the inputs that it was built from. It is immutable and lies in host
// memory.
class GridCpu : public MapIndex {
 public:
  // Makes all lookups of one problem. It reads the output rows from `outputs`. O(K N_out), and
  // O(extent of the outputs) scratch.
  virtual absl::StatusOr<KernelMap> Query(const MapProblem& problem, const CoordinateRows& outputs,
                                          bool symmetric,
                                          const ExecutionContext& context) const = 0;
};

using GridCpuPtr = std::unique_ptr<GridCpu>;

// A grid of one int32 for each cell. kResourceExhausted if the index exceeds `limit_mib` MiB. The
// message gives the size needed.
absl::StatusOr<GridCpuPtr> BuildDenseGridCpu(const CoordinateRows& inputs, int64_t limit_mib,
                                             const ExecutionContext& context);
// A grid of one bit for each cell, a 32-bit rank for every 64 cells, and 4 bytes for each row. It
// takes interleaved rows only. The errors are the same.
absl::StatusOr<GridCpuPtr> BuildBitmapGridCpu(const CoordinateSet& inputs, int64_t limit_mib,
                                              const ExecutionContext& context);

// SpConv 1.x's rule generation. Query makes a grid over the outputs, of one int32 for each cell,
// and goes over the inputs. kResourceExhausted, of Query, if the grid exceeds `limit_mib` MiB.
GridCpuPtr MakeRulesGridCpu(int64_t limit_mib);

// Luo and Lai's operators. Query makes a location table, of one int32 for each cell: over the
// outputs of a strided layer, whose offset table it makes in two stages; over the inputs of another
// layer, as a dense grid. The rows that `inputs` refers to must outlive it. kResourceExhausted, of
// Query, if the location table exceeds `limit_mib` MiB.
GridCpuPtr MakeTwoStageGridCpu(const CoordinateRows& inputs, int64_t limit_mib);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_GRID_GRID_CPU_H_
