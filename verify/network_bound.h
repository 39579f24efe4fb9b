// SPDX-License-Identifier: Apache-2.0
// How far the outputs of whole networks may be apart.
#ifndef VOXCONV_VERIFY_NETWORK_BOUND_H_
#define VOXCONV_VERIFY_NETWORK_BOUND_H_

#include "voxconv/networks/graph.h"

namespace voxconv::verify {

// A bound on the norm-wise difference of two runs of `graph`, one in each precision, for inputs
// that are too large for the reference. It follows from the layers' bounds:
//
//   e(layer)^2 = max over its inputs of e(input)^2 + b(layer)^2,   bound = e(output)
//
// b is the layer's RelativeTolerance in both precisions, with two stores. Four stores are the most
// that a dataflow does; their errors are as large as two that point in one direction.
// OperandTolerance is added if the precisions differ, and in tf32, where operands are f32 until a
// product rounds them. The squares of the layers' errors are added, because the errors are
// independent. A layer does not change a relative error: weights with random signs scale errors as
// they scale features, a ReLU cuts off half of the squares of both, and the relative error of a sum
// or concatenation is at most that of its worse part. This holds for weights from
// InitializeParameters. NetworkLayers finds the same bound with the reference; tests compare the
// two.
double NetworkBound(const NetworkGraph& graph, Precision precision_a, Precision precision_b);

// The same for two runs in one precision.
inline double NetworkBound(const NetworkGraph& graph, Precision precision) {
  return NetworkBound(graph, precision, precision);
}

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_NETWORK_BOUND_H_
