// SPDX-License-Identifier: Apache-2.0
// voxconv.tune, voxconv.experiment and what voxconv.report needs.
#ifndef VOXCONV_PYTHON_BINDINGS_TUNE_H_
#define VOXCONV_PYTHON_BINDINGS_TUNE_H_

#include <nanobind/nanobind.h>

namespace voxconv::python {

void DefineTune(nanobind::module_& module);
void DefineExperiment(nanobind::module_& module);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_TUNE_H_
