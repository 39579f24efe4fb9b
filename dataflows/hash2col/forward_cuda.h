#ifndef VOXCONV_DATAFLOWS_HASH2COL_FORWARD_CUDA_H_
#define VOXCONV_DATAFLOWS_HASH2COL_FORWARD_CUDA_H_

#include "absl/status/status.h"
#include "core/backend.h"
#include "core/dataflow.h"
#include "core/kernel_map.h"
#include "dataflows/hash2col/plan.h"

namespace voxconv {

// Runs `plan` in its dtype. `map` is a neighbour table, counted or not; `columns` is the plan's
// [block_rows, K * C_in] buffer. Deterministic: a sum is that of one matrix product.
absl::Status Hash2colCuda(const Hash2colPlan& plan, const KernelMap& map, const ForwardArgs& args,
                          void* columns, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_HASH2COL_FORWARD_CUDA_H_
