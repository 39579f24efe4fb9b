// SPDX-License-Identifier: Apache-2.0
// The network that a command's options describe.
#ifndef VOXCONV_CLI_NETWORK_OPTIONS_H_
#define VOXCONV_CLI_NETWORK_OPTIONS_H_

#include "absl/status/statusor.h"
#include "voxconv/cli/session.h"
#include "voxconv/core/types.h"
#include "voxconv/networks/graph.h"
#include "voxconv/networks/models.h"

namespace voxconv::cli {

// --width and --grid: what is the same with all parameters.
void AddShapeOptions(po::options_description& options);
// --grid alone, for commands that run several networks.
void AddGridOption(po::options_description& options);
// The shape's options, --in-channels, --classes, --seed and --weights.
void AddNetworkOptions(po::options_description& options);

// What these options say. Those that the command does not have are as ModelOptions has them.
// kInvalidArgument names the option.
absl::StatusOr<ModelOptions> ParseModelOptions(const po::variables_map& values);

// --dtype of a network. kInvalidArgument names it: networks on the CPU run in f32.
absl::StatusOr<Precision> ParseNetworkDtype(const po::variables_map& values, BackendKind backend);

// The model of --network, --width, --in-channels, --classes and --grid. Its parameters are those of
// --weights or --seed. kInvalidArgument names the option.
absl::StatusOr<NetworkGraph> BuildNetwork(const po::variables_map& values);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_NETWORK_OPTIONS_H_
