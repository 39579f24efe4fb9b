// SPDX-License-Identifier: Apache-2.0
// voxconv.networks.Network.
#ifndef VOXCONV_PYTHON_BINDINGS_NETWORK_H_
#define VOXCONV_PYTHON_BINDINGS_NETWORK_H_

#include <nanobind/nanobind.h>

#include <vector>

#include "engine.h"
#include "voxconv/networks/graph.h"
#include "voxconv/networks/planner.h"

namespace voxconv::python {

// The graph of a Network of Python. TypeError for another object.
const NetworkGraph& GraphOf(nanobind::handle network);

// The plugins of a layer for which none are named: those of defaults.json for this backend.
LayerChoice DefaultChoice(BackendKind kind);
// What voxconv.tune returns, or a list of dicts with these keys; empty for None.
std::vector<PlannedLayer> ToPlan(nanobind::handle plan);

void DefineNetwork(nanobind::module_& module);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_NETWORK_H_
