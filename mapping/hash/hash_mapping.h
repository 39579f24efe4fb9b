// SPDX-License-Identifier: Apache-2.0
// What mapping "hash" is on every backend: its options.
#ifndef VOXCONV_MAPPING_HASH_HASH_MAPPING_H_
#define VOXCONV_MAPPING_HASH_HASH_MAPPING_H_

#include <string>

#include "absl/status/status.h"
#include "voxconv/core/coordinate_rows.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/options.h"
#include "voxconv/core/plugin.h"

namespace voxconv {

class HashMapping : public RowsMapping {
 public:
  static PluginDescription Describe();
  // Refuses options that do not go together, on any backend.
  static absl::Status CheckOptions(const Options& options);

 protected:
  using RowsMapping::RowsMapping;

  const std::string& variant() const { return options().GetEnum("variant"); }
  double load_factor() const { return options().GetFloat("load_factor"); }
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_HASH_HASH_MAPPING_H_
