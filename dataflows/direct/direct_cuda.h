// direct on the CUDA backend.
#ifndef VOXCONV_DATAFLOWS_DIRECT_DIRECT_CUDA_H_
#define VOXCONV_DATAFLOWS_DIRECT_DIRECT_CUDA_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/dataflow.h"
#include "dataflows/direct/direct_weights.h"

namespace voxconv {

// Books nothing. Pairs and bytes are among the counters of maps whose pairs have been counted.
absl::StatusOr<std::unique_ptr<DataflowPlan>> PlanDirectCuda(DirectWeights weights,
                                                             const KernelMap& map,
                                                             const ConvShape& shape);

// Naive: a thread an output row and channel. Cached: thread blocks bring the weights of a few
// channels to shared memory, piece by piece, for a few hundred rows. Both add in the same order, in
// f32.
absl::Status ForwardDirectCuda(const DataflowPlan& plan, const KernelMap& map,
                               const ForwardArgs& args, const Workspace& workspace,
                               const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_DIRECT_DIRECT_CUDA_H_
