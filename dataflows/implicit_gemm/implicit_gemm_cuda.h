#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_IMPLICIT_GEMM_CUDA_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_IMPLICIT_GEMM_CUDA_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/dataflow.h"

namespace voxconv {

// `tile` and `tile_channels` are the plugin's options. Tensor cores for tf32, f16 and bf16 from
// compute capability 8.0 on. Neither planning nor running waits for the device, unless counters
// are asked for of a map whose pairs are counted.
absl::StatusOr<std::unique_ptr<DataflowPlan>> PlanImplicitGemmCuda(int64_t tile,
                                                                   int64_t tile_channels,
                                                                   const KernelMap& map,
                                                                   const ConvShape& shape,
                                                                   const ExecutionContext& context);

absl::Status ForwardImplicitGemmCuda(const DataflowPlan& plan, const KernelMap& map,
                                     const ForwardArgs& args, const Workspace& workspace,
                                     const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_IMPLICIT_GEMM_CUDA_H_
