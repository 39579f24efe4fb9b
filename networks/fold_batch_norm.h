// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_NETWORKS_FOLD_BATCH_NORM_H_
#define VOXCONV_NETWORKS_FOLD_BATCH_NORM_H_

#include "absl/status/statusor.h"
#include "voxconv/networks/graph.h"

namespace voxconv {

// Folds every batch norm into the convolution before it, if it is the only reader of that
// convolution. The weights are scaled per output channel, the bias takes the shift, and the
// convolution takes the ReLU. Results are equal in exact arithmetic, not bitwise.
// kFailedPrecondition for a graph whose parameters have no values.
absl::StatusOr<NetworkGraph> FoldBatchNorm(NetworkGraph graph);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_FOLD_BATCH_NORM_H_
