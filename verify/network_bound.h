// How far two runs of a whole network may differ.
#ifndef VOXCONV_VERIFY_NETWORK_BOUND_H_
#define VOXCONV_VERIFY_NETWORK_BOUND_H_

#include "networks/graph.h"
#include "verify/network_bound.h"

namespace voxconv::verify {

// On the norm-wise difference of two runs of `graph` in `dtype`, each off by as much. Rounding
// errors of the layers are independent, so their squares add up.
double NetworkBound(const NetworkGraph& graph, DType dtype);

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_NETWORK_BOUND_H_
