// SPDX-License-Identifier: Apache-2.0
// voxconv.networks.Network.
#ifndef VOXCONV_PYTHON_BINDINGS_NETWORK_H_
#define VOXCONV_PYTHON_BINDINGS_NETWORK_H_

#include <nanobind/nanobind.h>

namespace voxconv::python {

void DefineNetwork(nanobind::module_& module);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_NETWORK_H_
