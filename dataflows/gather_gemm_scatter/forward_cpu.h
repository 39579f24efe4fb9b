#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_FORWARD_CPU_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_FORWARD_CPU_H_

#include "core/backend.h"
#include "core/dataflow.h"
#include "core/kernel_map.h"
#include "dataflows/gather_gemm_scatter/plan.h"

namespace voxconv {

// Runs `plan` in f32. `map` has the layout plan.rule().map; `gather` and `scatter` are the
// plan's two buffers. Bitwise the same for any thread count: every output element is summed in
// the order identity offset, passes, ascending offsets, whichever thread does it.
void GatherGemmScatterCpu(const GatherGemmScatterPlan& plan, const KernelMap& map,
                          const ForwardArgs& args, float* gather, float* scatter,
                          const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_FORWARD_CPU_H_
