// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_TRAINING_DATA_CLASS_WEIGHTS_H_
#define VOXCONV_TRAINING_DATA_CLASS_WEIGHTS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/training/data/dataset.h"

namespace voxconv {

// A weight for each class, inverse to how many labels of the set are that class: labels / (classes
// that occur * labels of the class), so that the mean weight of a label is 1. 0 for a class that
// does not occur. Labels are those of points or clouds before voxelisation. Loads every cloud once.
// kInvalidArgument where all labels are ignored. Errors of Dataset::Load.
absl::StatusOr<std::vector<float>> BalancedClassWeights(const Dataset& set);

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_DATA_CLASS_WEIGHTS_H_
