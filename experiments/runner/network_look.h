// What the layers and maps of a network are like on an input, without times.
#ifndef VOXCONV_EXPERIMENTS_RUNNER_NETWORK_LOOK_H_
#define VOXCONV_EXPERIMENTS_RUNNER_NETWORK_LOOK_H_

#include "absl/status/statusor.h"
#include "measure/ab/work.h"
#include "measure/preset.h"
#include "measure/result_line.h"

namespace voxconv::experiment {

// Runs the network once. An array with a measure::LayerJson a convolution.
absl::StatusOr<measure::Json> LookAtNetwork(const ab::NetworkShape& shape,
                                            const measure::Configuration& configuration,
                                            Precision dtype, const VoxelizedCloud& cloud, uint64_t seed,
                                            const Registry& registry,
                                            const ExecutionContext& context);

}  // namespace voxconv::experiment

#endif  // VOXCONV_EXPERIMENTS_RUNNER_NETWORK_LOOK_H_
