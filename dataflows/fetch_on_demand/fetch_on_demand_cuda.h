// fetch_on_demand on the CUDA backend.
#ifndef VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FETCH_ON_DEMAND_CUDA_H_
#define VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FETCH_ON_DEMAND_CUDA_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/dataflow.h"
#include "dataflows/fetch_on_demand/schedule.h"

namespace voxconv {

// Cuts the pairs of every offset into tiles. Books an f32 sum of the output where that is stored in
// 16 bits. O(K).
absl::StatusOr<std::unique_ptr<DataflowPlan>> PlanFetchOnDemandCuda(
    std::vector<FgmsLaunch> launches, const KernelMap& map, const ConvShape& shape,
    const ExecutionContext& context);

// Thread blocks own tiles of pairs of one offset and of output channels: input rows go straight to
// shared memory, and results are added to the output, atomically where a launch has more than one
// offset; the order of these additions varies. The offset under which every row meets itself, where
// there is one, is launched before the others and stores its results: nothing is cleared.
absl::Status ForwardFetchOnDemandCuda(const DataflowPlan& plan, const KernelMap& map,
                                      const ForwardArgs& args, const Workspace& workspace,
                                      const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FETCH_ON_DEMAND_CUDA_H_
