// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_BACKENDS_CPU_CPU_TRAINING_OPS_H_
#define VOXCONV_BACKENDS_CPU_CPU_TRAINING_OPS_H_

#include <memory>

#include "voxconv/core/training_ops.h"

namespace voxconv {

std::unique_ptr<TrainingOps> MakeCpuTrainingOps();

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_CPU_TRAINING_OPS_H_
