// Named configurations, kept as data files, and the words by which commands select one.
#ifndef VOXCONV_EXPERIMENTS_HARNESS_PRESET_H_
#define VOXCONV_EXPERIMENTS_HARNESS_PRESET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/registry.h"
#include "experiments/harness/result_line.h"

namespace voxconv::harness {

// PCEngine's Algorithm 1: layers are grouped by (stride, accumulated stride); a group runs
// `fetch_on_demand` only if no layer of it has more than `threshold` channels on either side.
struct HeuristicPlanner {
  int64_t threshold = 64;
  std::string fetch_on_demand;  // dataflow specs
  std::string gather_gemm_scatter;
  friend bool operator==(const HeuristicPlanner&, const HeuristicPlanner&) = default;
};

// What the layer of that name uses instead; an empty spec changes nothing.
struct LayerOverride {
  std::string layer;
  std::string mapping;
  std::string dataflow;
  friend bool operator==(const LayerOverride&, const LayerOverride&) = default;
};

// Plugin specs as in core/options.h.
struct Configuration {
  std::string mapping;
  std::string dataflow;  // with a planner: of what is no layer of a network
  std::string output_coords;
  std::optional<HeuristicPlanner> planner;
  std::vector<LayerOverride> layers;
  friend bool operator==(const Configuration&, const Configuration&) = default;
};

struct Preset {
  std::string name;
  std::string summary;
  std::string source;  // the paper or engine it follows
  Configuration configuration;
};

inline constexpr char kDefaultOutputCoords[] = "sort";

// {"name", "summary", "source", "mapping", "dataflow"} and optionally "output_coords", "planner":
// {"kind": "heuristic", "threshold", "fetch_on_demand", "gather_gemm_scatter"} and "layers":
// {LAYER: {"mapping", "dataflow"}}. Refused, naming the key: one missing, unknown or of the wrong
// type. Specs are not looked up.
absl::StatusOr<Preset> ParsePreset(absl::string_view json);

// $VOXCONV_PRESET_DIR, ../share/voxconv/presets beside the program's folder, and the source tree's
// experiments/presets, as far as they exist. A preset of an earlier one hides its namesakes.
std::vector<std::string> PresetDirectories();

// Sorted names; the preset `name` is the file name.json.
std::vector<std::string> ListPresets();

// kNotFound lists the names there are. Errors in the file are preceded by its path.
absl::StatusOr<Preset> LoadPreset(absl::string_view name);

// Checks that every spec of the configuration names a registered plugin with allowed options, and
// writes it with all its options. Errors name the part of the configuration.
absl::StatusOr<Configuration> Resolve(const Configuration& configuration, const Registry& registry);

// `text` is a preset's name, or MAPPING/DATAFLOW or MAPPING/DATAFLOW/OUTPUT_COORDS in specs, such
// as "hash:variant=std/fetch_on_demand". The result is resolved.
absl::StatusOr<Configuration> ResolveConfig(absl::string_view text, const Registry& registry);

// The keys of ParsePreset that describe the configuration.
Json ToJson(const Configuration& configuration);

}  // namespace voxconv::harness

#endif  // VOXCONV_EXPERIMENTS_HARNESS_PRESET_H_
