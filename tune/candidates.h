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

// One option of a dataflow and the values to try. "divisors(c_in)" and "divisors(c_out)" stand for
// the divisors of the layer's channels.
struct GridAxis {
  std::string option;
  std::vector<std::string> values;
};

// A second look at a dataflow that did well: the product of the axes, its other options as they
// were in its best candidate.
struct OptionGrid {
  std::string dataflow;  // the plugin's name
  GridAxis where;  // only if the best candidate's option has one of these values; may be empty
  std::vector<GridAxis> axes;
};

struct Candidates {
  // Canonical specs, each once, in the order in which they are tried.
  std::vector<std::string> mappings, dataflows, output_coords;
  std::vector<OptionGrid> grids;  // one after the other, each from the best so far
};

// `quick`: every plugin's default. Otherwise all variants of mappings and output_coords; of
// dataflows the product of their enum options and their extra variants; and the grids of the
// papers: TorchSparse's (epsilon, S) search (Algorithm 5) for adaptive grouping, and Minuet's tile
// search (Algorithm 2: every divisor of the channels), for gather and for scatter.
Candidates DefaultCandidates(const Registry& registry, bool quick);

// {"mappings": [...], "dataflows": [...], "output_coords": [...], "grids": [{"dataflow", "where":
// {OPTION: [VALUES]}, "axes": {OPTION: [VALUES]}}]}; what is absent is taken from `defaults`,
// except that dataflows without grids have none. Refuses unknown keys, plugins and options by name.
absl::StatusOr<Candidates> ParseCandidates(absl::string_view json, const Registry& registry,
                                           const Candidates& defaults);

// Narrows one family to `wanted`: a spec with options stands for itself, a name for those of its
// plugin in `candidates` (for its default where there are none).
template <typename Plugin>
absl::StatusOr<std::vector<std::string>> Narrow(const PluginFamily<Plugin>& family,
                                                const std::vector<std::string>& candidates,
                                                const std::vector<std::string>& wanted);

// The specs of `grid` from `base`, a canonical spec; empty where the grid does not apply to it.
std::vector<std::string> Expand(const OptionGrid& grid, const std::string& base, int64_t c_in,
                                int64_t c_out, const PluginFamily<Dataflow>& family);

}  // namespace voxconv::tune

#endif  // VOXCONV_TUNE_CANDIDATES_H_
