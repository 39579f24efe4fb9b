// SPDX-License-Identifier: Apache-2.0
// Batch norm in training with the sum and the ReLU behind it, for voxconv.torch.
#ifndef VOXCONV_PYTHON_BINDINGS_TRAINING_NORM_H_
#define VOXCONV_PYTHON_BINDINGS_TRAINING_NORM_H_

#include <nanobind/nanobind.h>

namespace voxconv::python {

void DefineTrainingNorm(nanobind::module_& module);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_TRAINING_NORM_H_
