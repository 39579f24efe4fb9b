// SPDX-License-Identifier: Apache-2.0
// The network that a command's options describe.
#ifndef VOXCONV_CLI_NETWORK_OPTIONS_H_
#define VOXCONV_CLI_NETWORK_OPTIONS_H_

#include "absl/status/statusor.h"
#include "voxconv/cli/session.h"
#include "voxconv/networks/graph.h"

namespace voxconv::cli {

// --width, --in-channels, --classes, --grid, --seed and --weights.
void AddNetworkOptions(po::options_description& options);

// The model of --network, --width, --in-channels, --classes and --grid. Its parameters are those of
// --weights or --seed. kInvalidArgument names the option.
absl::StatusOr<NetworkGraph> BuildNetwork(const po::variables_map& values);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_NETWORK_OPTIONS_H_
