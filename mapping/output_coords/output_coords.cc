// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/output_coords/output_coords.h"

#include "absl/strings/str_cat.h"

namespace voxconv {

Support ExpandingOutputCoords::DoSupports(const ConvGeometry& geometry) const {
  if (geometry.kind() == ConvKind::kStrided || geometry.kind() == ConvKind::kTransposed) {
    return Support::Yes();
  }
  return Support::No(absl::StrCat("outputs of ", ToString(geometry.kind()),
                                  " convolutions are given, not computed"));
}

OptionSchema LocationTableOptions() {
  OptionSchema schema;
  schema.Int("memory_limit_mib", 4096, 1, 1 << 20,
             "largest array over all cells, in MiB, beyond which there is a hash table; on the CPU "
             "without pages that no output lies in");
  return schema;
}

int64_t MaxTableBytes(const Options& options) { return options.GetInt("memory_limit_mib") << 20; }

}  // namespace voxconv
