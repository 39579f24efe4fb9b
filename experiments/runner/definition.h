// SPDX-License-Identifier: Apache-2.0
// The definition of an experiment, as its file gives it.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_DEFINITION_H_
#define VOXCONV_EXPERIMENTS_RUNNER_DEFINITION_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/registry.h"
#include "voxconv/io/load_input.h"
#include "voxconv/measure/ab/work.h"
#include "voxconv/measure/preset.h"
#include "voxconv/measure/result_line.h"

namespace voxconv::experiment {

// What a cell runs: a network, one layer, or a map alone. kInfo runs a network once, without times,
// to describe its layers and maps.
enum class CellKind { kNetwork, kLayer, kMap, kInfo };

struct InputSource {
  std::string name;   // in results and plots; the input itself where the file gives none
  std::string like;   // the kind of data, such as "outdoor-64"; may be empty
  std::string data;   // the data set, such as "SemanticKITTI"; may be empty
  std::string input;  // a path or scene:...
  std::string voxel_size = "0.05";
  std::string range;              // as `--range`; empty: none
  std::optional<RowOrder> order;  // none: those of Definition::orders, or else kScan
  ReadOptions read;
  std::optional<double> x;            // its place on a plot's axis
  std::vector<std::string> backends;  // only on these; empty: on all
  // Further samples of a batch, read as `input` is, which is the first.
  std::vector<std::string> batch;
};

inline RowOrder OrderOf(const InputSource& input) { return input.order.value_or(RowOrder::kScan); }

struct WorkItem {
  std::string label;  // "minkunet42", "submanifold k3 32->64"
  ab::NetworkShape network;
  ab::LayerShape layer;
};

struct ConfigurationItem {
  std::string name;
  // A text as for `voxconv ab`, plan:FILE in network cells included, or an object with a preset's
  // keys.
  measure::Json spec;
  std::vector<std::string> against;  // the names of sides B; empty for the baseline, in info cells
  // By backend: replaces the precision of the cell.
  std::map<BackendKind, Precision> precision;
  measure::Json params;  // of "for": {"B": 256}
  std::vector<std::string> backends;
};

struct Definition {
  std::string name;  // "minuet/fig16"
  std::string title;
  CellKind kind = CellKind::kLayer;
  std::vector<std::string> backends;  // empty: all
  std::vector<InputSource> inputs, quick_inputs;
  std::string given_inputs;  // "replace", "add" or "none"
  std::vector<int64_t> resolutions, quick_resolutions;
  std::vector<WorkItem> works, quick_works;
  std::map<BackendKind, std::vector<Precision>> precisions;
  std::vector<bool> rebuild_maps;
  std::vector<RowOrder> orders;  // of inputs without an own one; not empty: each in each of them
  bool stage_times = false;
  // Hardware counters of this stage or group of stages alone; empty: of the whole run.
  std::string counters_stage;
  std::vector<ConfigurationItem> configurations;
  std::string baseline;
  measure::Json json;  // all of the file
};

// The inputs of a file that names none. The second: under --quick, of a file without quick inputs.
std::vector<InputSource> DefaultInputs();
std::vector<InputSource> DefaultQuickInputs();

// Reads a definition. The user guide's section on experiment files says what is allowed.
// kInvalidArgument gives the key, its value and what is allowed.
absl::StatusOr<Definition> ParseDefinition(absl::string_view text);

// Reads the definition `name`, which is a path that ends in .json or a name from ListDefinitions.
// Errors in a file begin with its path.
absl::StatusOr<Definition> LoadDefinition(const std::string& name);
// kInvalidArgument if $VOXCONV_EXPERIMENT_DIR is set and is not a directory.
absl::Status CheckDirectory();
// Sorted names of the files in $VOXCONV_EXPERIMENT_DIR, the installed package and the source tree.
std::vector<std::string> ListDefinitions();

// The kinds of data that the shipped files name. Inputs that users give may have these kinds.
const std::vector<std::string>& InputKinds();

// An array of inputs as in the key "inputs" of an experiment, for --inputs.
absl::StatusOr<std::vector<InputSource>> ParseInputs(absl::string_view text);

// The path of a configuration that is a tuned plan, "plan:FILE". It depends on the cell.
std::optional<std::string> PlanPathOf(const ConfigurationItem& item);

// The configuration of an item that is no plan, checked against the registry. In map cells a spec
// is MAPPING[/OUTPUT_COORDS].
absl::StatusOr<measure::Configuration> ResolveItem(const ConfigurationItem& item, CellKind kind,
                                                   const Registry& registry);

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_DEFINITION_H_
