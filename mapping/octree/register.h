// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_MAPPING_OCTREE_REGISTER_H_
#define VOXCONV_MAPPING_OCTREE_REGISTER_H_

#include "absl/status/status.h"
#include "voxconv/core/registry.h"

namespace voxconv {

// Adds mapping "octree": input coordinates in an octree, one descent for each output row and kernel
// offset.
absl::Status RegisterOctreeMapping(Registry& registry);
// Adds its implementation for CUDA. Only builds with CUDA have it.
absl::Status RegisterOctreeMappingCuda(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OCTREE_REGISTER_H_
