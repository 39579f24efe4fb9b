#ifndef VOXCONV_NETWORKS_FOLD_BATCH_NORM_H_
#define VOXCONV_NETWORKS_FOLD_BATCH_NORM_H_

#include "absl/status/statusor.h"
#include "networks/graph.h"

namespace voxconv {

// The graph with every batch norm that is the only consumer of a convolution folded into it: the
// weights are scaled per output channel, a bias takes the shift, and the ReLU moves along. Equal in
// exact arithmetic, not bitwise. Refuses a graph whose parameters have no values.
absl::StatusOr<NetworkGraph> FoldBatchNorm(NetworkGraph graph);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_FOLD_BATCH_NORM_H_
