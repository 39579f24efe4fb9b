// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/initialize.h"

#include <cmath>
#include <vector>

#include "voxconv/core/check.h"
#include "voxconv/core/fnv.h"
#include "voxconv/core/random.h"

namespace voxconv {
namespace {

// How many inputs one output channel sums up: the product of all axes of the weights but the last.
int64_t FanIn(const Parameter& weights) { return weights.size() / weights.shape.back(); }

struct Range {
  double lo, hi;
};

Range RangeOf(const Parameter& parameter) {
  switch (parameter.role) {
    case Parameter::Role::kWeight: {
      // Variance bound^2 / 3 = 2 / fan_in.
      const double bound = std::sqrt(6.0 / static_cast<double>(FanIn(parameter)));
      return {-bound, bound};
    }
    case Parameter::Role::kGamma:
    case Parameter::Role::kVariance:
      return {0.75, 1.25};
    case Parameter::Role::kBias:
    case Parameter::Role::kBeta:
    case Parameter::Role::kMean:
      return {-0.1, 0.1};
  }
  return {0, 0};
}

}  // namespace

void InitializeParameters(NetworkGraph& graph, uint64_t seed) {
  for (const Parameter& parameter : graph.parameters()) {
    Random random(seed ^ HashFnv1a(parameter.name));
    const Range range = RangeOf(parameter);
    std::vector<float> values(parameter.size());
    for (float& value : values) value = static_cast<float>(random.Uniform(range.lo, range.hi));
    VOXCONV_CHECK(graph.SetParameter(parameter.name, values).ok());
  }
}

}  // namespace voxconv
