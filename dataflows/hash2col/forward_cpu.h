#ifndef VOXCONV_DATAFLOWS_HASH2COL_FORWARD_CPU_H_
#define VOXCONV_DATAFLOWS_HASH2COL_FORWARD_CPU_H_

#include "core/backend.h"
#include "core/dataflow.h"
#include "core/kernel_map.h"
#include "dataflows/hash2col/plan.h"

namespace voxconv {

// Runs `plan` in f32. `map` is a neighbour table; `columns` is the plan's
// [block_rows, K * C_in] buffer. Bitwise the same for any thread count.
void Hash2colCpu(const Hash2colPlan& plan, const KernelMap& map, const ForwardArgs& args,
                 float* columns, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_HASH2COL_FORWARD_CPU_H_
