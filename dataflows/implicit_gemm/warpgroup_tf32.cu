// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/implicit_gemm/instances.h"
#include "voxconv/dataflows/implicit_gemm/warpgroup_kernel.cuh"

namespace voxconv {

absl::Status LaunchImplicitGemmWarpgroupTf32(const ImplicitGemmTile& tile,
                                             const ImplicitGemmArgs& args,
                                             const ExecutionContext& context) {
  VOXCONV_CHECK(tile.rows == WarpgroupShapeOf(Precision::kTf32, tile.channels).rows);
  switch (tile.channels) {
    case 64:
      return LaunchWarpgroup<WarpgroupConfig<float, 128, 64, 4, 2>>(args, context);
    case 96:
      return LaunchWarpgroup<WarpgroupConfig<float, 128, 96, 3, 2>>(args, context);
    case 128:
      return LaunchWarpgroup<WarpgroupConfig<float, 192, 128, 5, 1>>(args, context);
    default:
      VOXCONV_CHECK(tile.channels == 256);
      return LaunchWarpgroup<WarpgroupConfig<float, 128, 256, 4, 1>>(args, context);
  }
}

}  // namespace voxconv
