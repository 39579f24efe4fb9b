#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_REGISTER_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_REGISTER_H_

#include "absl/status/status.h"
#include "core/registry.h"

namespace voxconv {

// Adds the dataflow "gather_gemm_scatter" (TorchSparse, PCEngine, Minuet).
absl::Status RegisterGatherGemmScatter(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_REGISTER_H_
