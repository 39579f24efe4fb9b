// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_REGISTER_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_REGISTER_H_

#include "absl/status/status.h"
#include "voxconv/core/registry.h"

namespace voxconv {

// Adds the dataflow `implicit_gemm`. It is output-stationary and sorts rows by the kernel offsets
// that they have. It can split the offsets into parts. It runs on the CPU.
absl::Status RegisterImplicitGemm(Registry& registry);
// Makes it run on CUDA too. Only in builds with CUDA.
absl::Status RegisterImplicitGemmCuda(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_REGISTER_H_
