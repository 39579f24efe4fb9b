// SPDX-License-Identifier: Apache-2.0
// Seeded parameters, for runs without trained weights.
#ifndef VOXCONV_NETWORKS_INITIALIZE_H_
#define VOXCONV_NETWORKS_INITIALIZE_H_

#include <cstdint>

#include "voxconv/networks/graph.h"

namespace voxconv {

// Gives every parameter values that depend on `seed` and on its name alone. They are the same bits
// on every machine and compiler, whatever other layers there are. Weights are uniform with He's
// variance 2 / fan_in (He et al., 2015), so that activations neither vanish nor blow up over the
// layers. Batch norm statistics are near those of the identity, and differ from it. O(parameters).
void InitializeParameters(NetworkGraph& graph, uint64_t seed);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_INITIALIZE_H_
