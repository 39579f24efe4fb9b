// SPDX-License-Identifier: Apache-2.0
// The plugins that commands take if the user names none. They stand in the data file defaults.json
// beside the presets, so that the code does not name plugins.
#ifndef VOXCONV_MEASURE_DEFAULTS_H_
#define VOXCONV_MEASURE_DEFAULTS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/types.h"
#include "voxconv/networks/planner.h"

namespace voxconv::measure {

// The file's name without .json. No preset has it.
inline constexpr char kDefaultsName[] = "defaults";

// Specs by role.
struct Defaults {
  // For whole networks, by backend.
  std::map<BackendKind, LayerChoice> layers;
  // For `conv`, which runs one layer. `info` takes the mapping.
  LayerChoice single_layer;
  // For configurations that name no output coordinates.
  std::string output_coords;
  // Outputs of other plugins on whole inputs are compared with those of these plugins. These are
  // compared with the fp64 reference.
  LayerChoice trusted;
  // Benchmarks compare mappings with this mapping, and outputs of convolutions with those of this
  // dataflow.
  std::string baseline_mapping, baseline_dataflow;
  // The dataflows of narrow and wide layers (HeuristicPlanner).
  std::string narrow, wide;

  // `layers` of this backend. kNotFound if the file has none.
  absl::StatusOr<LayerChoice> LayersOn(BackendKind backend) const;
};

// {"layers": {BACKEND: CHOICE}, "single_layer": CHOICE, "output_coords", "trusted": CHOICE,
// "baseline": {"mapping", "dataflow"}, "heuristic": {"narrow", "wide"}} with CHOICE = {"mapping",
// "dataflow", "output_coords"}. kInvalidArgument names a key that is missing, unknown or of the
// wrong type. Specs are not looked up.
absl::StatusOr<Defaults> ParseDefaults(absl::string_view json);

// Reads the first defaults.json in PresetDirectories (measure/preset.h). kNotFound if there is
// none. Errors in the file begin with its path.
absl::StatusOr<Defaults> LoadDefaults();

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_DEFAULTS_H_
