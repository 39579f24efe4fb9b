#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_FORWARD_CUDA_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_FORWARD_CUDA_H_

#include <memory>

#include "absl/status/status.h"
#include "core/backend.h"
#include "core/dataflow.h"
#include "core/kernel_map.h"
#include "dataflows/gather_gemm_scatter/plan.h"

namespace voxconv {

// See plan_cuda.h.
std::unique_ptr<DataflowPlan> MakeGatherGemmScatterCudaPlan(Schedule schedule, const KernelMap& map,
                                                            const ConvShape& shape,
                                                            const MoveRule& rule,
                                                            const CudaMoveRule& cuda,
                                                            const ExecutionContext& context);

// Runs a plan of MakeGatherGemmScatterCudaPlan. `map` has the layout plan.rule().map. Partial
// products are stored in the features' dtype, as TorchSparse and Minuet store them; they are added
// up in f32 in the order identity offset, passes, ascending offsets, and the sum is rounded once.
// Deterministic in both orders of movement: in locality order an output row is one thread's, in
// weight order an offset is one launch, and no output row occurs in it twice.
absl::Status GatherGemmScatterCuda(const GatherGemmScatterPlan& plan, const KernelMap& map,
                                   const ForwardArgs& args, const Workspace& workspace,
                                   const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_FORWARD_CUDA_H_
