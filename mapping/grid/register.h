// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_MAPPING_GRID_REGISTER_H_
#define VOXCONV_MAPPING_GRID_REGISTER_H_

#include "absl/status/status.h"
#include "voxconv/core/registry.h"

namespace voxconv {

// Adds mapping "grid": an array over all cells of the inputs' bounding box.
absl::Status RegisterGridMapping(Registry& registry);
// Adds its implementation for CUDA. Only builds with CUDA have it.
absl::Status RegisterGridMappingCuda(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_GRID_REGISTER_H_
