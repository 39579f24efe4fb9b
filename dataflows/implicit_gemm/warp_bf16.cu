// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/implicit_gemm/instances.h"
#include "voxconv/dataflows/implicit_gemm/warp_kernel.cuh"

namespace voxconv {

absl::Status LaunchImplicitGemmWarpBF16(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                                        const ExecutionContext& context) {
  return LaunchWarpOf<__nv_bfloat16>(tile, args, context);
}

}  // namespace voxconv
