// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_MAPPING_HASH_REGISTER_H_
#define VOXCONV_MAPPING_HASH_REGISTER_H_

#include "absl/status/status.h"
#include "voxconv/core/registry.h"

namespace voxconv {

// Adds mapping "hash": input coordinates in a hash table, one lookup for each output row and
// kernel offset.
absl::Status RegisterHashMapping(Registry& registry);
// Adds its implementation for CUDA. Only builds with CUDA have it.
absl::Status RegisterHashMappingCuda(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_HASH_REGISTER_H_
