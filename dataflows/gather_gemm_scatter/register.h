// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_REGISTER_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_REGISTER_H_

#include "absl/status/status.h"
#include "voxconv/core/registry.h"

namespace voxconv {

// Adds the dataflow "gather_gemm_scatter" (TorchSparse, PCEngine, Minuet). It runs on the CPU.
absl::Status RegisterGatherGemmScatter(Registry& registry);
// Makes it run on CUDA too. Only in builds with CUDA.
absl::Status RegisterGatherGemmScatterCuda(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_REGISTER_H_
