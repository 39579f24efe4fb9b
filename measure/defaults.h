// The plugins that are taken where none are named. They stand in a data file, defaults.json beside
// the presets, so that the code names no plugin.
#ifndef VOXCONV_MEASURE_DEFAULTS_H_
#define VOXCONV_MEASURE_DEFAULTS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/types.h"
#include "networks/planner.h"

namespace voxconv::measure {

// The file's name without .json. No preset has it.
inline constexpr char kDefaultsName[] = "defaults";

// Specs by role.
struct Defaults {
  // What whole networks run with, by backend.
  std::map<BackendKind, LayerChoice> layers;
  // What `conv` runs one layer with; `info` takes its mapping.
  LayerChoice single_layer;
  // Of configurations that name none.
  std::string output_coords;
  // What others are held against on whole inputs. Their own gate is the fp64 reference.
  LayerChoice trusted;
  // What benchmarks compare mappings with, and what gives the outputs that their convolutions must
  // have.
  std::string baseline_mapping, baseline_dataflow;
  // The dataflows of narrow and wide layers (HeuristicPlanner).
  std::string narrow, wide;

  // `layers` of this backend. kNotFound where the file has none.
  absl::StatusOr<LayerChoice> LayersOn(BackendKind backend) const;
};

// {"layers": {BACKEND: CHOICE}, "single_layer": CHOICE, "output_coords", "trusted": CHOICE,
// "baseline": {"mapping", "dataflow"}, "heuristic": {"narrow", "wide"}} with CHOICE = {"mapping",
// "dataflow", "output_coords"}. kInvalidArgument names a key that is missing, unknown or of the
// wrong type. Specs are not looked up.
absl::StatusOr<Defaults> ParseDefaults(absl::string_view json);

// Of the first defaults.json in PresetDirectories (measure/preset.h). kNotFound where there is
// none. Errors in the file are preceded by its path.
absl::StatusOr<Defaults> LoadDefaults();

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_DEFAULTS_H_
