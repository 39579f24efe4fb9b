// SPDX-License-Identifier: Apache-2.0
// Describes the layers and maps of a network on an input, without times.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_NETWORK_LOOK_H_
#define VOXCONV_EXPERIMENTS_RUNNER_NETWORK_LOOK_H_

#include "absl/status/statusor.h"
#include "voxconv/measure/ab/work.h"
#include "voxconv/measure/preset.h"
#include "voxconv/measure/result_line.h"

namespace voxconv::experiment {

// Runs the network once. Returns an array with a measure::LayerJson for each convolution.
absl::StatusOr<measure::Json> LookAtNetwork(const ab::NetworkShape& shape,
                                            const measure::Configuration& configuration,
                                            Precision precision, const VoxelizedCloud& cloud,
                                            uint64_t seed, const Registry& registry,
                                            const ExecutionContext& context);

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_NETWORK_LOOK_H_
