// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/data/class_weights.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "voxconv/core/status_macros.h"

namespace voxconv {

absl::StatusOr<std::vector<float>> BalancedClassWeights(const Dataset& set) {
  std::vector<int64_t> counts(set.classes(), 0);
  for (int64_t i = 0; i < set.size(); ++i) {
    VOXCONV_ASSIGN_OR_RETURN(const LabelledCloud cloud, set.Load(i));
    for (const int32_t label : cloud.labels) {
      if (label != set.ignored()) ++counts[label];
    }
  }
  const auto all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  if (all == 0) return absl::InvalidArgumentError("all labels of the training data are ignored");
  const auto occur = static_cast<double>(
      std::count_if(counts.begin(), counts.end(), [](int64_t count) { return count > 0; }));
  std::vector<float> weights(counts.size(), 0);
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] > 0) {
      weights[c] = static_cast<float>(all / (occur * static_cast<double>(counts[c])));
    }
  }
  return weights;
}

}  // namespace voxconv
