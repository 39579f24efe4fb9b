#include "core/dataflow.h"

namespace voxconv {

absl::Status Dataflow::BackwardInput(const DataflowPlan&, const KernelMap&,
                                     const BackwardInputArgs&, const Workspace&,
                                     const ExecutionContext&) const {
  return absl::UnimplementedError("this dataflow has no input gradient");
}

absl::Status Dataflow::BackwardWeight(const DataflowPlan&, const KernelMap&,
                                      const BackwardWeightArgs&, const Workspace&,
                                      const ExecutionContext&) const {
  return absl::UnimplementedError("this dataflow has no weight gradient");
}

}  // namespace voxconv
