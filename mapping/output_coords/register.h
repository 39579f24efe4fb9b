// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_MAPPING_OUTPUT_COORDS_REGISTER_H_
#define VOXCONV_MAPPING_OUTPUT_COORDS_REGISTER_H_

#include "absl/status/status.h"
#include "voxconv/core/registry.h"

namespace voxconv {

// Adds output coordinates "sort_unique", "staged", "appended", "fused" and "location_table": five
// ways to the same rows.
absl::Status RegisterOutputCoords(Registry& registry);
// Adds their implementations for CUDA. Only builds with CUDA have it.
absl::Status RegisterOutputCoordsCuda(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OUTPUT_COORDS_REGISTER_H_
