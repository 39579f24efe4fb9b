// SPDX-License-Identifier: Apache-2.0
// The tensor-core kernels by element type. Each has a file of its own, because they take long to
// compile. The functions queue their work on the context's stream and do not synchronise it.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_INSTANCES_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_INSTANCES_H_

#include "voxconv/dataflows/implicit_gemm/implicit_gemm_kernels.h"

namespace voxconv {

absl::Status LaunchImplicitGemmWarpF16(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                                       const ExecutionContext& context);
absl::Status LaunchImplicitGemmWarpBF16(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                                        const ExecutionContext& context);
absl::Status LaunchImplicitGemmWarpTf32(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                                        const ExecutionContext& context);
absl::Status LaunchImplicitGemmBlockF16(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                                        const ExecutionContext& context);
absl::Status LaunchImplicitGemmBlockBF16(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                                         const ExecutionContext& context);
absl::Status LaunchImplicitGemmBlockTf32(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                                         const ExecutionContext& context);
absl::Status LaunchImplicitGemmWarpgroupF16(const ImplicitGemmTile& tile,
                                            const ImplicitGemmArgs& args,
                                            const ExecutionContext& context);
absl::Status LaunchImplicitGemmWarpgroupBF16(const ImplicitGemmTile& tile,
                                             const ImplicitGemmArgs& args,
                                             const ExecutionContext& context);
// The weights are [K, c_out, ld_weights], rounded to tf32. ld_weights is c_in.
absl::Status LaunchImplicitGemmWarpgroupTf32(const ImplicitGemmTile& tile,
                                             const ImplicitGemmArgs& args,
                                             const ExecutionContext& context);
// Sums of two tf32 numbers in place of floats. The weights are [2 K, c_out, ld_weights]: rounded,
// and then the remainders.
absl::Status LaunchImplicitGemmWarpgroupF32(const ImplicitGemmTile& tile,
                                            const ImplicitGemmArgs& args,
                                            const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_INSTANCES_H_
