// SPDX-License-Identifier: Apache-2.0
// What mapping "grid" is on every backend: its options.
#ifndef VOXCONV_MAPPING_GRID_GRID_MAPPING_H_
#define VOXCONV_MAPPING_GRID_GRID_MAPPING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/core/coordinate_rows.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/options.h"
#include "voxconv/core/plugin.h"

namespace voxconv {

class GridMapping : public RowsMapping {
 public:
  static PluginDescription Describe();
  // kInvalidArgument for options that do not go together.
  static absl::Status CheckOptions(const Options& options);

  Support DoSupports(const ConvGeometry&) const final { return Support::Yes(); }

 protected:
  using RowsMapping::RowsMapping;

  bool bitmap() const { return options().GetEnum("storage") == "bitmap"; }
  bool scalar() const { return options().GetEnum("coords") == "scalar"; }
  bool two_stage() const { return options().GetEnum("storage") == "two_stage"; }
  bool rules() const { return options().GetEnum("storage") == "rules"; }
  int64_t limit_mib() const { return options().GetInt("memory_limit_mib"); }
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_GRID_GRID_MAPPING_H_
