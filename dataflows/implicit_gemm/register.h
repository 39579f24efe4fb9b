#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_REGISTER_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_REGISTER_H_

#include "absl/status/status.h"
#include "core/registry.h"

namespace voxconv {

// Adds the dataflow `implicit_gemm`: output-stationary, rows sorted by which kernel offsets they
// have, optionally split over the offsets.
absl::Status RegisterImplicitGemm(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_REGISTER_H_
