// SPDX-License-Identifier: Apache-2.0
// voxconv.load, voxconv.voxelize and voxconv.scenes.
#ifndef VOXCONV_PYTHON_BINDINGS_INPUT_H_
#define VOXCONV_PYTHON_BINDINGS_INPUT_H_

#include <nanobind/nanobind.h>

namespace voxconv::python {

void DefineInput(nanobind::module_& module);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_INPUT_H_
