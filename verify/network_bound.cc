#include "verify/network_bound.h"

#include <cmath>
#include <cstdint>

#include "verify/bounds.h"

namespace voxconv::verify {

double NetworkBound(const NetworkGraph& graph, DType dtype) {
  double sum = 0;
  for (int id : graph.Convolutions()) {
    const Node& node = graph.node(id);
    const int64_t volume =
        int64_t{node.geometry.kernel.x} * node.geometry.kernel.y * node.geometry.kernel.z;
    const double bound =
        RelativeTolerance(dtype, volume * graph.InputChannels(node)) + OperandTolerance(dtype);
    sum += bound * bound;
  }
  return 2 * std::sqrt(sum);
}

}  // namespace voxconv::verify
