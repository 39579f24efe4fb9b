#include "networks/initialize.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/check.h"

namespace voxconv {
namespace {

// 64-bit FNV-1a; std::hash may differ from library to library.
uint64_t HashName(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

// Uniform in [lo, hi). The engine is fixed by the C++ standard, the distributions of <random> are
// not.
class Uniform {
 public:
  explicit Uniform(uint64_t seed) : engine_(seed) {}
  float operator()(double lo, double hi) {
    const double unit = static_cast<double>(engine_() >> 11) * 0x1.0p-53;
    return static_cast<float>(lo + (hi - lo) * unit);
  }

 private:
  std::mt19937_64 engine_;
};

// Inputs that one output channel sums up: all axes of the weights but the last.
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
    Uniform uniform(seed ^ HashName(parameter.name));
    const Range range = RangeOf(parameter);
    std::vector<float> values(parameter.size());
    for (float& value : values) value = uniform(range.lo, range.hi);
    VOXCONV_CHECK(graph.SetParameter(parameter.name, values).ok());
  }
}

}  // namespace voxconv
