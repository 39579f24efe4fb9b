// How far the outputs of whole networks may be apart.
#ifndef VOXCONV_VERIFY_NETWORK_BOUND_H_
#define VOXCONV_VERIFY_NETWORK_BOUND_H_

#include "networks/graph.h"

namespace voxconv::verify {

// On the norm-wise difference of two runs of `graph`, one in each dtype, for input where no
// reference can be computed. It follows from the layers' bounds:
//
//   e(layer)^2 = max over its inputs of e(input)^2 + b(layer)^2,   bound = e(output)
//
// b is the layer's RelativeTolerance in both dtypes, with two stores, and their OperandTolerance
// where the dtypes differ or are tf32, whose operands are f32 until a product rounds them. Four
// stores, the most that a dataflow does, have errors as large as two that point in one direction.
// The squares of the layers' errors add up since they are independent. A relative error passes
// through a layer as it is: weights with random signs scale errors like features, a ReLU cuts off
// half of the squares of both, and a sum or concatenation has no larger relative error than the
// worse of its parts. This holds for weights from InitializeParameters. NetworkLayers measures the
// same on the reference; tests hold the two against each other.
double NetworkBound(const NetworkGraph& graph, Precision dtype_a, Precision dtype_b);

// Of two runs in the same dtype.
inline double NetworkBound(const NetworkGraph& graph, Precision dtype) {
  return NetworkBound(graph, dtype, dtype);
}

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_NETWORK_BOUND_H_
