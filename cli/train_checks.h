// SPDX-License-Identifier: Apache-2.0
// Checks of what `voxconv train` and `voxconv eval` are given. Messages name the argument.
#ifndef VOXCONV_CLI_TRAIN_CHECKS_H_
#define VOXCONV_CLI_TRAIN_CHECKS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/cli/session.h"
#include "voxconv/training/data/dataset.h"
#include "voxconv/training/run/training_run.h"

namespace voxconv::cli {

// A whole number within [least, most].
absl::Status CheckAtLeast(const po::variables_map& values, const char* name, int64_t least,
                          int64_t most);

absl::Status CheckVoxelSize(const po::variables_map& values);

// The numbers of a training that need no data set.
absl::Status CheckTrainingNumbers(const po::variables_map& values);

// --class-weights as a list. Empty without one, and for "balanced", which FitToData resolves.
absl::StatusOr<std::vector<float>> ParseClassWeights(const po::variables_map& values);

// Checks and sets in `config` what only the training data tells: the warm-up and the weights of the
// classes. Loads the set once for weights that are balanced.
absl::Status FitToData(const po::variables_map& values, const Dataset& train,
                       TrainingRunConfig& config);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_TRAIN_CHECKS_H_
