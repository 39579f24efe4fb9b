// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_PYTHON_BINDINGS_INTEROP_H_
#define VOXCONV_PYTHON_BINDINGS_INTEROP_H_

#include <nanobind/nanobind.h>

#include "status.h"

namespace voxconv::python {

// Adds what voxconv.interop is made of: the conventions of other engines (io/convention.h) and
// files of weights.
void DefineInterop(nb::module_& module);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_INTEROP_H_
