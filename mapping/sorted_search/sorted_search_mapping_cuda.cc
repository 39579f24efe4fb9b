// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "voxconv/mapping/sorted_search/register.h"
#include "voxconv/mapping/sorted_search/sorted_keys_cuda.h"
#include "voxconv/mapping/sorted_search/sorted_search_cuda.h"
#include "voxconv/mapping/sorted_search/sorted_search_mapping.h"

namespace voxconv {
namespace {

using SortedSearchCudaMapping =
    SortedSearchMappingOn<SortedSearchCuda, SortedKeysCuda, &BuildSortedKeysCuda, true>;

}  // namespace

absl::Status RegisterSortedSearchMappingCuda(Registry& registry) {
  return registry.mappings().Implement(
      "sorted_search", BackendKind::kCuda,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
        VOXCONV_RETURN_IF_ERROR(SortedSearchMapping::CheckOptions(options));
        return std::make_unique<const SortedSearchCudaMapping>(std::move(options));
      });
}

}  // namespace voxconv
