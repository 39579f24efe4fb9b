// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/input_check.h"

#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {

absl::Status CheckNetworkInput(const CompiledNetwork& network, const Backend& backend,
                               const SparseTensorView& input) {
  const NetworkGraph& graph = network.graph;
  const ConstTensorView& features = input.features;
  if (input.coordinates == nullptr) {
    return absl::InvalidArgumentError("coordinates: none are given");
  }
  const CoordinateSet& coordinates = *input.coordinates;
  if (coordinates.tensor_stride() != graph.coordinates()[0].tensor_stride) {
    return absl::InvalidArgumentError(
        absl::StrCat("coordinates: tensor stride ", ToString(coordinates.tensor_stride()), "; ",
                     graph.name(), " takes ", ToString(graph.coordinates()[0].tensor_stride)));
  }
  if (features.rows != coordinates.size() || features.channels != graph.in_channels()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "features: shape [", features.rows, ", ", features.channels, "]; ", graph.name(),
        " takes [", coordinates.size(), ", ", graph.in_channels(), "] for these coordinates"));
  }
  const DType stored = StorageOf(network.config.precision);
  if (features.dtype != DType::kF32 && features.dtype != stored) {
    return absl::InvalidArgumentError(
        absl::StrCat("features: dtype ", ToString(features.dtype), "; the network takes ",
                     stored == DType::kF32 ? "" : absl::StrCat(ToString(stored), " or "), "f32"));
  }
  return CheckTensor("features", features, features.rows, features.channels, features.dtype,
                     backend.device());
}

}  // namespace voxconv
