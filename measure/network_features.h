// SPDX-License-Identifier: Apache-2.0
// The features inside a network, as arrays.
#ifndef VOXCONV_MEASURE_NETWORK_FEATURES_H_
#define VOXCONV_MEASURE_NETWORK_FEATURES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/registry.h"
#include "voxconv/core/sparse_tensor.h"
#include "voxconv/io/npy.h"
#include "voxconv/networks/compiled_network.h"
#include "voxconv/networks/graph.h"

namespace voxconv::measure {

// kInvalidArgument for a name that is empty or comes twice.
absl::Status CheckLayers(const std::vector<std::string>& layers);

// Runs the network once and gives the tensors of the named layers:
//   features       float32 [N, C]
//   coords         int32 [N, 4]: batch, x, y, z in units of the finest voxel
//   tensor_stride  int32 [3]
// The names of several layers' arrays begin with the layer's name and a dot. After a global pooling
// rows are batch samples, which have features alone. Errors of NetworkRunner::Create and Run.
// kNotFound for an unknown layer. Errors of
// CheckLayers.
absl::StatusOr<NpzArrays> FeaturesOfLayers(const NetworkGraph& graph, RunConfig config,
                                           const std::vector<std::string>& layers,
                                           const SparseTensorView& input, const Registry& registry,
                                           Backend& backend);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_NETWORK_FEATURES_H_
