// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/implicit_gemm/instances.h"
#include "voxconv/dataflows/implicit_gemm/warpgroup_kernel.cuh"

namespace voxconv {

absl::Status LaunchImplicitGemmWarpgroupF16(const ImplicitGemmTile& tile,
                                            const ImplicitGemmArgs& args,
                                            const ExecutionContext& context) {
  return LaunchWarpgroupOf<__half>(tile, args, context);
}

}  // namespace voxconv
