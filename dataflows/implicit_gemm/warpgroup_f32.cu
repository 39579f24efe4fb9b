// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/implicit_gemm/instances.h"
#include "voxconv/dataflows/implicit_gemm/warpgroup_kernel.cuh"

namespace voxconv {

absl::Status LaunchImplicitGemmWarpgroupF32(const ImplicitGemmTile& tile,
                                            const ImplicitGemmArgs& args,
                                            const ExecutionContext& context) {
  VOXCONV_CHECK(tile.rows == WarpgroupShapeOf(Precision::kF32, tile.channels).rows);
  switch (tile.channels) {
    case 64:
      return LaunchWarpgroup<WarpgroupConfig<float, 192, 64, 4, 1, true>>(args, context);
    case 96:
      return LaunchWarpgroup<WarpgroupConfig<float, 128, 96, 4, 1, true>>(args, context);
    default:
      VOXCONV_CHECK(tile.channels == 128);
      return LaunchWarpgroup<WarpgroupConfig<float, 128, 128, 4, 1, true>>(args, context);
  }
}

}  // namespace voxconv
