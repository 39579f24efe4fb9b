// What a search tries.
#ifndef VOXCONV_TUNE_CANDIDATES_H_
#define VOXCONV_TUNE_CANDIDATES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/registry.h"

namespace voxconv::tune {

// A second look at a dataflow that did well, from the options of its best candidate.
struct DataflowGrid {
  std::string dataflow;  // the plugin's name
  OptionGrid grid;
};

struct Candidates {
  // Canonical specs, each once, in the order in which they are tried.
  std::vector<std::string> mappings, dataflows, output_coords;
  std::vector<DataflowGrid> grids;  // one after the other, each from the best so far
};

// What there is for `backend`. `quick`: every plugin's default. Otherwise all variants of mappings
// and output_coords, of dataflows the product of their enum options and their extra variants, and
// the grids that dataflows describe (core/plugin.h).
Candidates DefaultCandidates(const Registry& registry, BackendKind backend, bool quick);

// {"mappings": [...], "dataflows": [...], "output_coords": [...], "grids": [{"dataflow", "where":
// {OPTION: [VALUES]}, "axes": {OPTION: [VALUES]}}]}; what is absent is taken from `defaults`,
// except that dataflows without grids have none. Refuses unknown keys, plugins and options by name,
// and plugins that `backend` does not have.
absl::StatusOr<Candidates> ParseCandidates(absl::string_view json, const Registry& registry,
                                           BackendKind backend, const Candidates& defaults);

// Narrows one family to `wanted`: a spec with options stands for itself, a name for those of its
// plugin in `candidates` (for its default where there are none).
template <typename Plugin>
absl::StatusOr<std::vector<std::string>> Narrow(const PluginFamily<Plugin>& family,
                                                BackendKind backend,
                                                const std::vector<std::string>& candidates,
                                                const std::vector<std::string>& wanted);

// The specs of `grid` from `base`, a canonical spec; empty where the grid does not apply to it.
std::vector<std::string> Expand(const DataflowGrid& grid, const std::string& base, int64_t c_in,
                                int64_t c_out, const PluginFamily<Dataflow>& family,
                                BackendKind backend);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_CANDIDATES_H_
