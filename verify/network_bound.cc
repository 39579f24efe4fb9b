#include "verify/network_bound.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "verify/bounds.h"

namespace voxconv::verify {
namespace {

constexpr int kStores = 2;

double Square(double x) { return x * x; }

// Products of an output of the layer; 0 where nothing is summed.
int64_t Reduction(const NetworkGraph& graph, const Node& node) {
  if (node.op == Op::kLinear) return graph.InputChannels(node);
  if (node.op != Op::kConv) return 0;
  const Int3& kernel = node.geometry.kernel;
  return int64_t{kernel.x} * kernel.y * kernel.z * graph.InputChannels(node);
}

// The squared relative error of one layer in one of two runs.
double LayerError(const NetworkGraph& graph, const Node& node, Precision dtype,
                  bool same_operands) {
  if (node.op == Op::kConcat) return 0;
  const int64_t reduction = Reduction(graph, node);
  double error = Square(RelativeTolerance(dtype, reduction, kStores));
  // Two runs in tf32 may round the f32 operands of a product differently: to nearest or by
  // truncation.
  if (reduction > 0 && (!same_operands || dtype == Precision::kTf32)) {
    error += Square(OperandTolerance(dtype));
  }
  return error;
}

}  // namespace

double NetworkBound(const NetworkGraph& graph, Precision dtype_a, Precision dtype_b) {
  const bool same_operands = dtype_a == dtype_b;
  std::vector<double> squares(graph.nodes().size(), 0.0);
  for (size_t id = 1; id < squares.size(); ++id) {
    const Node& node = graph.node(static_cast<int>(id));
    for (const int input : node.inputs) squares[id] = std::max(squares[id], squares[input]);
    for (const Precision dtype : {dtype_a, dtype_b}) {
      squares[id] += LayerError(graph, node, dtype, same_operands);
    }
  }
  return std::sqrt(squares[graph.output()]);
}

}  // namespace voxconv::verify
