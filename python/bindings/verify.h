// SPDX-License-Identifier: Apache-2.0
// voxconv.verify and voxconv.ab.
#ifndef VOXCONV_PYTHON_BINDINGS_VERIFY_H_
#define VOXCONV_PYTHON_BINDINGS_VERIFY_H_

#include <nanobind/nanobind.h>

namespace voxconv::python {

void DefineVerify(nanobind::module_& module);
void DefineAb(nanobind::module_& module);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_VERIFY_H_
