// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/implicit_gemm/block_kernel.cuh"
#include "voxconv/dataflows/implicit_gemm/instances.h"

namespace voxconv {

absl::Status LaunchImplicitGemmBlockF16(const ImplicitGemmTile& tile, const ImplicitGemmArgs& args,
                                        const ExecutionContext& context) {
  return LaunchBlockOf<__half>(tile, args, context);
}

}  // namespace voxconv
