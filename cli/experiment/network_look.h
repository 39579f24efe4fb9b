// What the layers and maps of a network are like on an input, without times.
#ifndef VOXCONV_CLI_EXPERIMENT_NETWORK_LOOK_H_
#define VOXCONV_CLI_EXPERIMENT_NETWORK_LOOK_H_

#include "absl/status/statusor.h"
#include "cli/ab/work.h"
#include "experiments/harness/preset.h"
#include "experiments/harness/result_line.h"

namespace voxconv::experiment {

// Runs the network once. An array with a cli::LayerJson a convolution.
absl::StatusOr<harness::Json> LookAtNetwork(const ab::NetworkShape& shape,
                                            const harness::Configuration& configuration,
                                            DType dtype, const VoxelizedCloud& cloud, uint64_t seed,
                                            const Registry& registry,
                                            const ExecutionContext& context);

}  // namespace voxconv::experiment

#endif  // VOXCONV_CLI_EXPERIMENT_NETWORK_LOOK_H_
