// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "voxconv/mapping/sorted_search/full_search_cpu.h"
#include "voxconv/mapping/sorted_search/register.h"
#include "voxconv/mapping/sorted_search/segment_search_cpu.h"
#include "voxconv/mapping/sorted_search/sorted_keys_cpu.h"
#include "voxconv/mapping/sorted_search/sorted_search_mapping.h"
#include "voxconv/mapping/sorted_search/z_walk_cpu.h"

namespace voxconv {
namespace {

using SortedSearchCpuMapping =
    SortedSearchMappingOn<SortedSearch, SortedKeys, &BuildSortedKeys, false>;

}  // namespace

absl::Status RegisterSortedSearchMapping(Registry& registry) {
  return registry.mappings().Register(
      SortedSearchMapping::Describe(), BackendKind::kCpu,
      [](Options options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
        VOXCONV_RETURN_IF_ERROR(SortedSearchMapping::CheckOptions(options));
        if (options.GetEnum("table") == "offset_major") {
          return absl::UnimplementedError("table=offset_major: only CUDA has a table of results");
        }
        return std::make_unique<const SortedSearchCpuMapping>(std::move(options));
      });
}

}  // namespace voxconv
