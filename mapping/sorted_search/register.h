// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_REGISTER_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_REGISTER_H_

#include "absl/status/status.h"
#include "voxconv/core/registry.h"

namespace voxconv {

// Adds mapping "sorted_search": Minuet's search in sorted input coordinates.
absl::Status RegisterSortedSearchMapping(Registry& registry);
// Adds its implementation for CUDA. Only builds with CUDA have it.
absl::Status RegisterSortedSearchMappingCuda(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_REGISTER_H_
