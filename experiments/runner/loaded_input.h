// SPDX-License-Identifier: Apache-2.0
// The inputs of cells in the host's memory, and what experiments of one process share.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_LOADED_INPUT_H_
#define VOXCONV_EXPERIMENTS_RUNNER_LOADED_INPUT_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "voxconv/experiments/runner/definition.h"
#include "voxconv/io/voxelize.h"
#include "voxconv/measure/ab/work.h"
#include "voxconv/measure/input_class.h"

namespace voxconv::experiment {

// A voxelised input and what result lines say about it.
struct LoadedInput {
  VoxelizedCloud cloud;
  std::string hash;
  measure::InputDensity density;
  double occupied = 0;  // voxels a cell of the bounding box
};

// Reads and voxelises the input, and the further samples of its batch.
absl::StatusOr<LoadedInput> LoadInputOf(const InputSource& source);

struct Shared {
  std::map<std::string, std::shared_ptr<const LoadedInput>> inputs;  // by their source
  ab::Kept kept;  // `sides` are of the input that is in use
};

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_LOADED_INPUT_H_
