// SPDX-License-Identifier: Apache-2.0
// Batch norm whose batch several processes share, for voxconv/torch/norm.py.
#ifndef VOXCONV_PYTHON_BINDINGS_SHARED_NORM_H_
#define VOXCONV_PYTHON_BINDINGS_SHARED_NORM_H_

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace voxconv::python {

// Defines _BatchPeers, _shared_norm and _shared_norm_grad; nothing in a module without CUDA.
void DefineSharedNorm(nb::module_& module);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_SHARED_NORM_H_
