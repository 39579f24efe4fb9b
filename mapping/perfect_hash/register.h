// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_MAPPING_PERFECT_HASH_REGISTER_H_
#define VOXCONV_MAPPING_PERFECT_HASH_REGISTER_H_

#include "absl/status/status.h"
#include "voxconv/core/registry.h"

namespace voxconv {

// Adds mapping "perfect_hash": H-CNN's perfect spatial hashing.
absl::Status RegisterPerfectHashMapping(Registry& registry);
// Adds its implementation for CUDA. Only builds with CUDA have it.
absl::Status RegisterPerfectHashMappingCuda(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_PERFECT_HASH_REGISTER_H_
