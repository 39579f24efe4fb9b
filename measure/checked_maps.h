// SPDX-License-Identifier: Apache-2.0
// Mappings whose maps are held against their definition before anything reads rows by them.
#ifndef VOXCONV_MEASURE_CHECKED_MAPS_H_
#define VOXCONV_MEASURE_CHECKED_MAPS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/registry.h"
#include "voxconv/measure/preset.h"

namespace voxconv::measure {

// `registry` with other mappings under the names for which `which` is true: they pass each map on
// that CheckMapOnAllRows (core/map_check.h) accepts, and return its error for others. The times of
// such mappings are not those of the plugins: they serve runs that come before the timed ones.
absl::StatusOr<Registry> WithCheckedMaps(const Registry& registry,
                                         const std::function<bool(absl::string_view)>& which);

// Whether the mapping that `spec` names comes from a library that this process has loaded
// (core/plugin_loader.h).
bool IsLoadedMapping(absl::string_view spec);
// Whether any mapping of the configuration does.
bool HasLoadedMapping(const Configuration& configuration);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_CHECKED_MAPS_H_
