// SPDX-License-Identifier: Apache-2.0
// In which order the layers of a network run, which of them run inside others, and when tensors can
// be freed. Worked out once, before any coordinate is known.
#ifndef VOXCONV_NETWORKS_SCHEDULE_H_
#define VOXCONV_NETWORKS_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "voxconv/networks/graph.h"

namespace voxconv {

// Where a tensor lies, if it is a part of another's.
struct Place {
  int whole = -1;     // the concatenation whose tensor has it; -1: the tensor stands for itself
  int64_t first = 0;  // of the whole's channels
};

// What a layer does to its sum before it stores it: its own bias and ReLU, and the work of the
// layers behind it that it takes over.
struct Tail {
  int result = -1;    // whose tensor is stored: the layer's own, or that of the last taken over
  int norm = -1;      // the batch norm taken over; -1: none
  int residual = -1;  // the node whose tensor is added; -1: none
  // The 1x1x1 convolution that makes the residual, if this layer adds the bias of it; -1: none.
  int residual_bias = -1;
  bool relu = false;
  Place place;  // of the result
};

struct Schedule {
  std::vector<int> order;       // nodes that run; all but the input and those taken over
  std::vector<Tail> tails;      // by node
  std::vector<int> fused_into;  // by node: which node does its work; -1: itself
  // By node that runs: the nodes whose tensors, and the poolings whose switches, no node reads
  // after it.
  std::vector<std::vector<int>> dying_tensors, dying_switches;
};

// `fuses`: by node, whether its dataflow applies an epilogue as it stores. Such a node takes over a
// batch norm, an addition and a ReLU that follow it, in this order, as long as each is the only
// reader of what comes before it. The other input of the addition must be there when the node runs.
// If a 1x1x1 convolution makes that input, it is moved before the node where possible. All other
// nodes run in the graph's order. `kept`: by node, whether its own tensor is needed after the run.
// Such a node is taken over by none, and its tensor never dies; the output's is one of them.
// `strides`: by node, whether its dataflow reads and writes rows with gaps. A concatenation does
// not run if such nodes store both its inputs and are their only other readers. They store them in
// the concatenation's tensor, which lives from the first of them on. The last of them counts as
// what does its work.
Schedule MakeSchedule(const NetworkGraph& graph, const std::vector<bool>& fuses,
                      const std::vector<bool>& strides, std::vector<bool> kept);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_SCHEDULE_H_
