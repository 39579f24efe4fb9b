// SPDX-License-Identifier: Apache-2.0
// Named configurations, which are data files, and the texts by which commands select one.
#ifndef VOXCONV_MEASURE_PRESET_H_
#define VOXCONV_MEASURE_PRESET_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/registry.h"
#include "voxconv/measure/result_line.h"
#include "voxconv/networks/planner.h"

namespace voxconv::measure {

// The plugins that a user selects by one text. Specs are those of core/options.h. If the output
// coordinates of `choice` are empty, Resolve fills in those of Defaults (measure/defaults.h).
struct Configuration {
  LayerChoice choice;
  // Its mapping and output_coords are not used; those of `choice` are.
  std::optional<HeuristicPlanner::Config> heuristic;
  std::vector<LayerOverride> layers;
  // A tuned choice for every convolution (measure/plan_file.h). If it is not empty, `heuristic` and
  // `layers` are not used.
  std::vector<PlannedLayer> plan;
};

// A planner for a whole network. It follows the plan, if there is one. Otherwise it follows the
// heuristic or the one choice, and then the overrides of layers.
std::shared_ptr<const Planner> MakePlanner(const Configuration& configuration);

struct Preset {
  std::string name;
  std::string summary;
  std::string source;  // the paper or engine it follows
  // What the preset takes from its source: the part, and the place where the source documents it.
  std::vector<std::pair<std::string, std::string>> choices;
  // What the source does otherwise. One sentence or more each.
  std::vector<std::string> departs;
  Configuration configuration;
};

// {"name", "summary", "source", "mapping", "dataflow"} and optionally "output_coords",
// "planner": {"kind": "heuristic", "threshold", "narrow", "wide"},
// "layers": {PATTERN: {"mapping", "dataflow"}}, "choices": {PART: PLACE} and "departs": [TEXT].
// kInvalidArgument names a key that is missing, unknown or of the wrong type. Specs are not looked
// up. Without "output_coords" the choice has none.
absl::StatusOr<Preset> ParsePreset(absl::string_view json);

// DataDirectories (measure/data_files.h) of the presets, whose variable is VOXCONV_PRESET_DIR.
std::vector<std::string> PresetDirectories();

// Sorted names. The preset NAME is the file NAME.json. defaults.json (measure/defaults.h) is not a
// preset.
std::vector<std::string> ListPresets();

// kNotFound lists the names of the presets. Errors in the file begin with its path.
absl::StatusOr<Preset> LoadPreset(absl::string_view name);

// Checks that every spec of the configuration names a registered plugin with allowed options.
// Returns the configuration with all options written out, and with output coordinates. Does not ask
// whether a backend has the plugins. Errors name the part of the configuration.
absl::StatusOr<Configuration> Resolve(const Configuration& configuration, const Registry& registry);

// `text` is a preset's name, or MAPPING/DATAFLOW or MAPPING/DATAFLOW/OUTPUT_COORDS in specs. The
// result is resolved.
absl::StatusOr<Configuration> ResolveConfig(absl::string_view text, const Registry& registry);

// The keys of ParsePreset that describe the configuration.
Json ToJson(const Configuration& configuration);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_PRESET_H_
