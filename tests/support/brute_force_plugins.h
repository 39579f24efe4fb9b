// SPDX-License-Identifier: Apache-2.0
// Plugins that are small enough to be right at a glance, for tests of what uses plugins. For the
// CPU alone.
#ifndef VOXCONV_TESTS_SUPPORT_BRUTE_FORCE_PLUGINS_H_
#define VOXCONV_TESTS_SUPPORT_BRUTE_FORCE_PLUGINS_H_

#include "absl/status/status.h"
#include "voxconv/core/registry.h"

namespace voxconv {

// Adds a mapping, a dataflow and output coordinates, each called "brute_force". The mapping makes
// the form of its option `emit`, the dataflow reads the form of its option `take`: pairs or
// neighbour_table. The dataflow takes at most 4096 input channels. With epilogue=fused it applies
// epilogues itself.
absl::Status RegisterBruteForce(Registry& registry);

}  // namespace voxconv

#endif  // VOXCONV_TESTS_SUPPORT_BRUTE_FORCE_PLUGINS_H_
