// SPDX-License-Identifier: Apache-2.0
// The plugins and options that a search tries.
#ifndef VOXCONV_TUNE_CANDIDATES_H_
#define VOXCONV_TUNE_CANDIDATES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/registry.h"

namespace voxconv::tune {

// A grid that is tried around the best candidate of a dataflow.
struct DataflowGrid {
  std::string dataflow;  // the plugin's name
  OptionGrid grid;
};

struct Candidates {
  // Canonical specs, each once, in the order in which they are tried.
  std::vector<std::string> mappings, dataflows, output_coords;
  std::vector<DataflowGrid> grids;  // tried one after the other, each from the best so far
};

// The candidates for `backend`. With `quick` they are every plugin's default. Otherwise they are
// all variants of mappings and output_coords, the product of the enum options and the extra
// variants of dataflows, and the grids that dataflows describe (core/plugin.h).
Candidates DefaultCandidates(const Registry& registry, BackendKind backend, bool quick);

// {"mappings": [...], "dataflows": [...], "output_coords": [...], "grids": [{"dataflow", "where":
// {OPTION: [VALUES]}, "axes": {OPTION: [VALUES]}}]}. A key that is absent is taken from `defaults`;
// but if "dataflows" is given and "grids" is not, there are no grids. Refuses unknown keys, plugins
// and options by name, and plugins that `backend` does not have.
absl::StatusOr<Candidates> ParseCandidates(absl::string_view json, const Registry& registry,
                                           BackendKind backend, const Candidates& defaults);

// Narrows `candidates` of one family to `wanted`. A spec with options stands for itself. A name
// stands for the candidates of that plugin, or for its default if there are none.
template <typename Plugin>
absl::StatusOr<std::vector<std::string>> Narrow(const PluginFamily<Plugin>& family,
                                                BackendKind backend,
                                                const std::vector<std::string>& candidates,
                                                const std::vector<std::string>& wanted);

// The specs of `grid` around `base`, a canonical spec. Empty if the grid does not apply to it.
std::vector<std::string> Expand(const DataflowGrid& grid, const std::string& base, int64_t c_in,
                                int64_t c_out, const PluginFamily<Dataflow>& family,
                                BackendKind backend);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_CANDIDATES_H_
