// SPDX-License-Identifier: Apache-2.0
// voxconv.list_plugins, load_plugin, register_mapping and register_dataflow.
#ifndef VOXCONV_PYTHON_BINDINGS_PLUGINS_H_
#define VOXCONV_PYTHON_BINDINGS_PLUGINS_H_

#include <nanobind/nanobind.h>

namespace voxconv::python {

void DefinePlugins(nanobind::module_& module);
void DefinePythonPlugins(nanobind::module_& module);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_PLUGINS_H_
