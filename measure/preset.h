// Named configurations, kept as data files, and the words by which commands select one.
#ifndef VOXCONV_MEASURE_PRESET_H_
#define VOXCONV_MEASURE_PRESET_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/registry.h"
#include "measure/result_line.h"
#include "networks/planner.h"

namespace voxconv::measure {

// What a user selects as one thing. Specs as in core/options.h. Empty output coordinates of
// `choice` stand for Defaults' (measure/defaults.h), which Resolve fills in.
struct Configuration {
  LayerChoice choice;
  // The planner's own mapping and output_coords are unused: `choice` has them.
  std::optional<HeuristicPlanner::Config> heuristic;
  std::vector<LayerOverride> layers;
  // A tuned choice for every convolution (measure/plan_file.h), instead of `heuristic`
  // and `layers`; empty where there is none.
  std::vector<PlannedLayer> plan;
};

// The choices for a whole network: the plan; or the heuristic or the one choice, then the layers'
// overrides.
std::shared_ptr<const Planner> MakePlanner(const Configuration& configuration);

struct Preset {
  std::string name;
  std::string summary;
  std::string source;  // the paper or engine it follows
  Configuration configuration;
};

// {"name", "summary", "source", "mapping", "dataflow"} and optionally "output_coords",
// "planner": {"kind": "heuristic", "threshold", "narrow", "wide"} and
// "layers": {PATTERN: {"mapping", "dataflow"}}. Refused, naming the key: one missing, unknown or of
// the wrong type. Specs are not looked up. Without "output_coords" the choice has none.
absl::StatusOr<Preset> ParsePreset(absl::string_view json);

// $VOXCONV_PRESET_DIR, ../share/voxconv/presets beside the program's folder, and the source tree's
// experiments/presets, as far as they exist. A preset of an earlier one hides its namesakes.
std::vector<std::string> PresetDirectories();

// Sorted names; the preset `name` is the file name.json. defaults.json (measure/defaults.h) is
// none.
std::vector<std::string> ListPresets();

// kNotFound lists the names there are. Errors in the file are preceded by its path.
absl::StatusOr<Preset> LoadPreset(absl::string_view name);

// Checks that every spec of the configuration names a registered plugin with allowed options, and
// writes it with all its options. Whether a backend has the plugin is not asked. A choice without
// output coordinates gets Defaults'. Errors name the part of the configuration.
absl::StatusOr<Configuration> Resolve(const Configuration& configuration, const Registry& registry);

// `text` is a preset's name, or MAPPING/DATAFLOW or MAPPING/DATAFLOW/OUTPUT_COORDS in specs. The
// result is resolved.
absl::StatusOr<Configuration> ResolveConfig(absl::string_view text, const Registry& registry);

// The keys of ParsePreset that describe the configuration.
Json ToJson(const Configuration& configuration);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_PRESET_H_
