// SPDX-License-Identifier: Apache-2.0
// A convolution with the batch norm behind it as one call, for voxconv.torch.
#ifndef VOXCONV_PYTHON_BINDINGS_JOINED_H_
#define VOXCONV_PYTHON_BINDINGS_JOINED_H_

#include <nanobind/nanobind.h>

namespace voxconv::python {

void DefineJoined(nanobind::module_& module);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_JOINED_H_
