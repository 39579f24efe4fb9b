// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_NETWORKS_INPUT_CHECK_H_
#define VOXCONV_NETWORKS_INPUT_CHECK_H_

#include "absl/status/status.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/sparse_tensor.h"
#include "voxconv/networks/compiled_network.h"

namespace voxconv {

// Refuses an input that does not fit the network, or lies outside the backend's memory.
// kInvalidArgument names the argument, its value and what is allowed. O(1).
absl::Status CheckNetworkInput(const CompiledNetwork& network, const Backend& backend,
                               const SparseTensorView& input);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_INPUT_CHECK_H_
