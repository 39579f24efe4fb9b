// direct on the CPU backend.
#ifndef VOXCONV_DATAFLOWS_DIRECT_DIRECT_CPU_H_
#define VOXCONV_DATAFLOWS_DIRECT_DIRECT_CPU_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/dataflow.h"
#include "dataflows/direct/direct_weights.h"

namespace voxconv {

absl::StatusOr<std::unique_ptr<DataflowPlan>> PlanDirectCpu(DirectWeights weights,
                                                            const KernelMap& map,
                                                            const ConvShape& shape);

absl::Status ForwardDirectCpu(const DataflowPlan& plan, const KernelMap& map,
                              const ForwardArgs& args, const Workspace& workspace,
                              const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_DIRECT_DIRECT_CPU_H_
