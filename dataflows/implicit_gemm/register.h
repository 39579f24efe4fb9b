#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_REGISTER_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_REGISTER_H_

#include "absl/status/status.h"
#include "core/registry.h"

namespace voxconv {

// Adds the dataflow `implicit_gemm`: output-stationary, rows sorted by which kernel offsets they
// have, optionally split over the offsets. It runs on the CPU.
absl::Status RegisterImplicitGemm(Registry& registry);
// Makes it run on CUDA too. Only in builds with CUDA.
absl::Status RegisterImplicitGemmCuda(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_REGISTER_H_
