// SPDX-License-Identifier: Apache-2.0
// voxconv.conv, and the three passes of a convolution on a map that is kept.
#ifndef VOXCONV_PYTHON_BINDINGS_CONVOLUTION_H_
#define VOXCONV_PYTHON_BINDINGS_CONVOLUTION_H_

#include <nanobind/nanobind.h>

namespace voxconv::python {

void DefineConvolution(nanobind::module_& module);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_CONVOLUTION_H_
