// SPDX-License-Identifier: Apache-2.0
// Networks of voxconv.torch modules as one call of the engine.
#ifndef VOXCONV_PYTHON_BINDINGS_TRACED_NETWORK_H_
#define VOXCONV_PYTHON_BINDINGS_TRACED_NETWORK_H_

#include <nanobind/nanobind.h>

#include <string>

#include "status.h"
#include "voxconv/networks/graph.h"

namespace voxconv::python {

// The graph of layers that Python lists (voxconv/torch/trace.py): a dict for each, whose inputs are
// positions in the list. The last one is the output. All parameters are 0. ValueError names the
// layer that does not fit.
NetworkGraph GraphOfLayers(const std::string& name, const nb::list& layers);

void DefineTracedNetwork(nb::module_& module);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_TRACED_NETWORK_H_
