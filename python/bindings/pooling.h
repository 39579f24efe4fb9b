// SPDX-License-Identifier: Apache-2.0
// voxconv.pool and voxconv.global_pool.
#ifndef VOXCONV_PYTHON_BINDINGS_POOLING_H_
#define VOXCONV_PYTHON_BINDINGS_POOLING_H_

#include <nanobind/nanobind.h>

namespace voxconv::python {

void DefinePooling(nanobind::module_& module);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_POOLING_H_
