// SPDX-License-Identifier: Apache-2.0
// Whole networks on the fp64 oracle.
#ifndef VOXCONV_NETWORKS_REFERENCE_NETWORK_H_
#define VOXCONV_NETWORKS_REFERENCE_NETWORK_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/geometry.h"
#include "voxconv/core/types.h"
#include "voxconv/networks/graph.h"
#include "voxconv/reference_cpu/geometry.h"
#include "voxconv/reference_cpu/kernel_map.h"

namespace voxconv {

// The geometry as the oracle describes it. The oracle gives an inverse the tensor stride of the
// finer side, as its strided layer has it.
reference::Geometry ToReferenceGeometry(const GeometryParams& params);

struct ReferenceResult {
  std::vector<Coordinate> coordinates;  // empty after global pooling
  std::vector<double> features;         // [rows, channels] of the graph's output node
  int64_t channels = 0;
};

// One layer of a reference run. What it refers to lives during the call that gets it.
struct ReferenceLayer {
  int node = 0;
  std::vector<absl::Span<const double>> inputs;  // [rows, channels] of the node's inputs
  // Of a convolution: its map, and the rows of its input and its output.
  const reference::KernelMap* map = nullptr;
  absl::Span<const reference::Coord> input_rows, output_rows;
};
// Gets every layer after it is computed, in order. It may change `output`, which later layers read.
using ReferenceHook = std::function<void(const ReferenceLayer&, std::vector<double>& output)>;

// Interprets `graph` layer by layer with reference_cpu. It uses brute-force maps and fp64 sums, and
// shares nothing with the runner. `coordinates` are rows of the graph's input tensor stride,
// `features` [rows, in_channels], both on the host. kInvalidArgument for what the oracle refuses,
// and for parameters without values. Slow: meant for scenes of some thousand voxels.
absl::StatusOr<ReferenceResult> RunReferenceNetwork(const NetworkGraph& graph,
                                                    absl::Span<const Coordinate> coordinates,
                                                    absl::Span<const float> features,
                                                    const ReferenceHook& hook = {});

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_REFERENCE_NETWORK_H_
