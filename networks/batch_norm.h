// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_NETWORKS_BATCH_NORM_H_
#define VOXCONV_NETWORKS_BATCH_NORM_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "voxconv/networks/graph.h"

namespace voxconv {

// Batch norm at inference is y = x * scale + shift. Both are computed in fp64.
struct ScaleAndShift {
  std::vector<double> scale, shift;
};

// `node` is a batch norm whose parameters have values.
inline ScaleAndShift InferenceBatchNorm(const NetworkGraph& graph, const Node& node) {
  const auto values = [&](int i) -> const std::vector<float>& {
    return graph.parameters()[node.parameters[i]].values;
  };
  const auto &gamma = values(0), &beta = values(1), &mean = values(2), &variance = values(3);
  ScaleAndShift result;
  for (size_t c = 0; c < gamma.size(); ++c) {
    const double scale = gamma[c] / std::sqrt(variance[c] + kBatchNormEpsilon);
    result.scale.push_back(scale);
    result.shift.push_back(beta[c] - mean[c] * scale);
  }
  return result;
}

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_BATCH_NORM_H_
