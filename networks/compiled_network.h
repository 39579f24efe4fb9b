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
#include "networks/schedule.h"

namespace voxconv {

struct RunConfig {
  std::shared_ptr<const Planner> planner;  // required
  // What features and weights are stored in and layers computed with; sums, scales and shifts are
  // f32. The CPU takes f32 only.
  DType dtype = DType::kF32;
  // Batch norm goes into the convolution before it, instead of running as an operator of its own.
  bool fold_batch_norm = false;
  // Layers with the same map share it.
  bool reuse_maps = true;
  // Maps outlive a run and serve later runs on the same CoordinateSet; they are freed after their
  // last layer otherwise.
  bool keep_maps = false;
  // On CUDA, and where stages are not profiled, maps are built ahead of their layers, on streams
  // beside the one that computes, which waits for a map where its first layer comes; where memory
  // does not suffice for that, and otherwise, each is built when its first layer comes.
  bool parallel_maps = true;
  // Each layer's stages are timed and its counters kept, and Run waits for the results. Otherwise
  // Run queues the work, waits only where a size must be known on the host, and reports no layers.
  bool profile_stages = true;
  // Layer reports tell the pairs of maps also where only a device has counted them, and what
  // dataflows count by them: the host waits for each map, so that stages after it include what it
  // takes to queue them. Only together with profile_stages.
  bool count_pairs = true;
};

// What runs a layer. Plugins are owned by the CompiledNetwork and null where the layer needs none.
struct LayerSetup {
  std::optional<ConvGeometry> geometry;
  const Mapping* mapping = nullptr;
  const Dataflow* dataflow = nullptr;
  const OutputCoords* output_coords = nullptr;  // the layer that first needs a coordinate set
  LayerChoice specs;                            // canonical; empty where the plugin is null
};

// In the backend's memory. Convolution and linear: weights, and the shift of what they store, their
// own bias or that of their whole tail; scale where the tail has a batch norm. Batch norm that runs
// by itself: scale and shift. Empty arrays where there is none.
struct LayerParameters {
  Tensor weights;  // [K * C_in, C_out]
  Array<float> scale, shift;
};

// Coordinate sets made one of the other, in one go.
struct CoordinateChain {
  int from = 0;  // the set that the first is made of
  std::vector<int> sets;
  std::vector<ConvGeometry> geometries;  // by set
  const OutputCoords* output_coords = nullptr;
  int node = 0;  // the layer that first needs one of them
};

// A dataflow's plan, shared by layers of one map, dataflow and shape.
struct PlanSlot {
  int node = 0;        // whose dataflow and shape
  int last_user = -1;  // the last node that runs it
};

struct CompiledNetwork {
  NetworkGraph graph;  // as run: after folding, without host copies of the parameters
  RunConfig config;
  std::vector<LayerSetup> layers;           // by node
  std::vector<LayerParameters> parameters;  // by node
  int64_t parameter_bytes = 0;
  MapPlan maps;
  std::vector<CoordinateChain> chains;  // of all coordinate sets but the input's
  std::vector<PlanSlot> plans;
  std::vector<int> plan_of_node;  // -1 where no dataflow runs
  Schedule schedule;

  std::map<std::string, std::unique_ptr<const Mapping>> mappings;  // by canonical spec
  std::map<std::string, std::unique_ptr<const Dataflow>> dataflows;
  std::map<std::string, std::unique_ptr<const OutputCoords>> output_coords;
};

// Refuses, naming the layer: parameters without values, unknown plugins and options, layers and
// dtypes that their plugins do not support.
absl::StatusOr<std::unique_ptr<CompiledNetwork>> CompileNetwork(NetworkGraph graph,
                                                                const RunConfig& config,
                                                                const Registry& registry,
                                                                const ExecutionContext& context);

// `status` with the layer's name before its message.
absl::Status InLayer(const Node& node, const absl::Status& status);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_COMPILED_NETWORK_H_
