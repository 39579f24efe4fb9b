// SPDX-License-Identifier: Apache-2.0
#include "voxconv/verify/network_bound.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "voxconv/verify/bounds.h"

namespace voxconv::verify {
namespace {

constexpr int kStores = 2;

// Products of an output of the layer; 0 where nothing is summed.
int64_t Reduction(const NetworkGraph& graph, const Node& node) {
  if (node.op == Op::kLinear) return graph.InputChannels(node);
  if (node.op != Op::kConv) return 0;
  const Int3& kernel = node.geometry.kernel;
  return int64_t{kernel.x} * kernel.y * kernel.z * graph.InputChannels(node);
}

// The squared relative error of one layer in one of two runs.
double LayerError(const NetworkGraph& graph, const Node& node, Precision precision,
                  bool same_operands) {
  if (node.op == Op::kConcat) return 0;
  const int64_t reduction = Reduction(graph, node);
  double error = Square(RelativeTolerance(precision, reduction, kStores));
  // Two runs in tf32 may round the f32 operands of a product differently: to nearest or by
  // truncation.
  if (reduction > 0 && (!same_operands || precision == Precision::kTf32)) {
    error += Square(OperandTolerance(precision));
  }
  return error;
}

}  // namespace

double NetworkBound(const NetworkGraph& graph, Precision precision_a, Precision precision_b) {
  const bool same_operands = precision_a == precision_b;
  std::vector<double> squares(graph.nodes().size(), 0.0);
  for (size_t id = 1; id < squares.size(); ++id) {
    const Node& node = graph.node(static_cast<int>(id));
    for (const int input : node.inputs) squares[id] = std::max(squares[id], squares[input]);
    for (const Precision precision : {precision_a, precision_b}) {
      squares[id] += LayerError(graph, node, precision, same_operands);
    }
  }
  return std::sqrt(squares[graph.output()]);
}

}  // namespace voxconv::verify
