// Whole networks on the fp64 oracle.
#ifndef VOXCONV_NETWORKS_REFERENCE_NETWORK_H_
#define VOXCONV_NETWORKS_REFERENCE_NETWORK_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/geometry.h"
#include "core/types.h"
#include "networks/graph.h"
#include "reference_cpu/geometry.h"

namespace voxconv {

// As the oracle describes geometries, which names an inverse by its strided layer: by the tensor
// stride of the finer side.
reference::Geometry ToReferenceGeometry(const GeometryParams& params);

struct ReferenceResult {
  std::vector<Coordinate> coordinates;  // empty after global pooling
  std::vector<double> features;         // [rows, channels] of the graph's output node
  int64_t channels = 0;
};

// Interprets `graph` layer by layer with reference_cpu: brute-force maps, fp64 sums, nothing shared
// with the runner. `coordinates` are rows of the graph's input tensor stride, `features`
// [rows, in_channels]. Refuses what the oracle refuses, and parameters without values. Slow: for
// scenes of some thousand voxels.
absl::StatusOr<ReferenceResult> RunReferenceNetwork(const NetworkGraph& graph,
                                                    absl::Span<const Coordinate> coordinates,
                                                    absl::Span<const float> features);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_REFERENCE_NETWORK_H_
