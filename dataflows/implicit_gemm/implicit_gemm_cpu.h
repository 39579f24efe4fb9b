// implicit_gemm on the CPU backend.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_IMPLICIT_GEMM_CPU_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_IMPLICIT_GEMM_CPU_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/dataflow.h"

namespace voxconv {

// Cuts each split's row order into tiles of `tile` rows and finds the offsets that any row of a
// tile has. O(splits * N_out * words).
absl::StatusOr<std::unique_ptr<DataflowPlan>> PlanImplicitGemmCpu(int64_t tile,
                                                                  const KernelMap& map,
                                                                  const ConvShape& shape);

absl::Status ForwardImplicitGemmCpu(const DataflowPlan& plan, const KernelMap& map,
                                    const ForwardArgs& args, const Workspace& workspace,
                                    const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_IMPLICIT_GEMM_CPU_H_
