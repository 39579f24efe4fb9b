// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/cuda_map_ops.h"

#include <utility>

#include "voxconv/backends/cuda/map_conversions.h"
#include "voxconv/backends/cuda/map_table.h"
#include "voxconv/backends/cuda/row_masks.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

class CudaMapOps final : public MapOps {
 public:
  absl::StatusOr<std::vector<int64_t>> CountPairs(const KernelMap& table,
                                                  const ExecutionContext& context) override {
    VOXCONV_ASSIGN_OR_RETURN(const SharedArray<uint32_t> masks, RowMasks(table, context));
    return CountMaskBits(masks, table.num_outputs(), table.num_offsets(), context);
  }

 protected:
  absl::StatusOr<PairList> TableToPairs(const KernelMap& table,
                                        const ExecutionContext& context) override {
    return voxconv::TableToPairs(table, context);
  }
  absl::StatusOr<NeighbourTable> PairsToTable(const KernelMap& pairs,
                                              const ExecutionContext& context) override {
    VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table, OutputTable(pairs, context));
    return NeighbourTable{.table = std::move(table), .masks = {}};
  }
  absl::StatusOr<PairList> TransposePairs(const KernelMap& pairs,
                                          const ExecutionContext& context) override {
    return voxconv::TransposePairs(pairs, context);
  }
  absl::StatusOr<NeighbourTable> TransposeTable(const KernelMap& table,
                                                const ExecutionContext& context) override {
    return voxconv::TransposeTable(table, context);
  }
};

}  // namespace

std::unique_ptr<MapOps> MakeCudaMapOps() { return std::make_unique<CudaMapOps>(); }

}  // namespace voxconv
