// A graph made ready to run on one backend: plugins chosen and asked whether they support their
// layers, parameters uploaded, maps planned, lifetimes known.
#ifndef VOXCONV_NETWORKS_COMPILED_NETWORK_H_
#define VOXCONV_NETWORKS_COMPILED_NETWORK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/registry.h"
#include "core/tensor.h"
#include "networks/graph.h"
#include "networks/map_plan.h"
#include "networks/planner.h"

namespace voxconv {

struct RunConfig {
  std::shared_ptr<const Planner> planner;  // required
  DType dtype = DType::kF32;               // f32 or tf32 (compute); features are stored as f32
  // Batch norm goes into the convolution before it, instead of running as an operator of its own.
  bool fold_batch_norm = false;
  // Layers with the same map share it.
  bool reuse_maps = true;
  // Maps outlive a run and serve later runs on the same CoordinateSet; they are freed after their
  // last layer otherwise.
  bool keep_maps = false;
};

// What runs a layer. Plugins are owned by the CompiledNetwork and null where the layer needs none.
struct LayerSetup {
  std::optional<ConvGeometry> geometry;
  const Mapping* mapping = nullptr;
  const Dataflow* dataflow = nullptr;
  const OutputCoords* output_coords = nullptr;  // the layer that first needs a coordinate set
  LayerChoice specs;                            // canonical; empty where the plugin is null
};

// In the backend's memory. Convolution and linear: weights, and shift as bias. Batch norm: scale
// and shift. Empty arrays where there is none.
struct LayerParameters {
  Tensor weights;  // [K * C_in, C_out]
  Array<float> scale, shift;
};

struct CompiledNetwork {
  NetworkGraph graph;  // as run: after folding, without host copies of the parameters
  RunConfig config;
  std::vector<LayerSetup> layers;           // by node
  std::vector<LayerParameters> parameters;  // by node
  int64_t parameter_bytes = 0;
  MapPlan maps;
  // By node: nodes whose tensors, and poolings whose switches, nobody reads after it.
  std::vector<std::vector<int>> dying_tensors, dying_switches;

  std::map<std::string, std::unique_ptr<const Mapping>> mappings;  // by canonical spec
  std::map<std::string, std::unique_ptr<const Dataflow>> dataflows;
  std::map<std::string, std::unique_ptr<const OutputCoords>> output_coords;
};

// Refuses, naming the layer: parameters without values, unknown plugins and options, layers that
// their plugins do not support, dtypes other than f32 and tf32.
absl::StatusOr<std::unique_ptr<CompiledNetwork>> CompileNetwork(NetworkGraph graph,
                                                                const RunConfig& config,
                                                                const Registry& registry,
                                                                const ExecutionContext& context);

// `status` with the layer's name before its message.
absl::Status InLayer(const Node& node, const absl::Status& status);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_COMPILED_NETWORK_H_
