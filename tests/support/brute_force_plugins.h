// Plugins that are small enough to be right at a glance, for tests of what uses plugins. Host
// memory only.
#ifndef VOXCONV_TESTS_SUPPORT_BRUTE_FORCE_PLUGINS_H_
#define VOXCONV_TESTS_SUPPORT_BRUTE_FORCE_PLUGINS_H_

#include "absl/status/status.h"
#include "core/registry.h"

namespace voxconv {

// Adds a mapping, a dataflow and an output_coords, each called "brute_force". The mapping's option
// `emit` and the dataflow's option `take` are pairs or neighbour_table; with its option
// `epilogue` fused it applies epilogues itself. The dataflow takes no more
// than 4096 input channels.
absl::Status RegisterBruteForce(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_TESTS_SUPPORT_BRUTE_FORCE_PLUGINS_H_
