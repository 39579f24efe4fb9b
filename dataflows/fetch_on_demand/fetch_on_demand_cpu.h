// fetch_on_demand on the CPU backend.
#ifndef VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FETCH_ON_DEMAND_CPU_H_
#define VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FETCH_ON_DEMAND_CPU_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/dataflow.h"
#include "dataflows/fetch_on_demand/schedule.h"

namespace voxconv {

// Cuts the outputs into tiles of `tile` rows and finds every tile's segment of every offset.
// O(K N_out / tile * log(pairs)).
absl::StatusOr<std::unique_ptr<DataflowPlan>> PlanFetchOnDemandCpu(std::vector<FgmsLaunch> launches,
                                                                   int64_t tile,
                                                                   const KernelMap& map,
                                                                   const ConvShape& shape);

absl::Status ForwardFetchOnDemandCpu(const DataflowPlan& plan, const KernelMap& map,
                                     const ForwardArgs& args, const Workspace& workspace,
                                     const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_FETCH_ON_DEMAND_CPU_H_
