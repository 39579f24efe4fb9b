// SPDX-License-Identifier: Apache-2.0
// voxconv.networks.Network.
#ifndef VOXCONV_PYTHON_BINDINGS_NETWORK_H_
#define VOXCONV_PYTHON_BINDINGS_NETWORK_H_

#include <nanobind/nanobind.h>

#include "voxconv/networks/graph.h"

namespace voxconv::python {

// The graph of a Network of Python. TypeError for another object.
const NetworkGraph& GraphOf(nanobind::handle network);

void DefineNetwork(nanobind::module_& module);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_NETWORK_H_
