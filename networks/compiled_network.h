// SPDX-License-Identifier: Apache-2.0
// A graph made ready to run on one backend. Its plugins are chosen and support their layers. Its
// parameters are uploaded, its maps are planned, and the lifetimes of its tensors are known.
#ifndef VOXCONV_NETWORKS_COMPILED_NETWORK_H_
#define VOXCONV_NETWORKS_COMPILED_NETWORK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/registry.h"
#include "voxconv/core/tensor.h"
#include "voxconv/networks/graph.h"
#include "voxconv/networks/map_plan.h"
#include "voxconv/networks/planner.h"
#include "voxconv/networks/schedule.h"

namespace voxconv {

struct RunConfig {
  std::shared_ptr<const Planner> planner;  // required
  // What layers compute products in. Features and weights are stored as StorageOf(precision); sums,
  // scales and shifts are f32. Backends in host memory take f32 only.
  Precision precision = Precision::kF32;
  // Batch norm is folded into the convolution before it and does not run as an operator of its own.
  bool fold_batch_norm = false;
  // Sets the layers up for training: for all passes, in the order of the graph, with every layer as
  // an operator of its own. The parameters stay in the graph. They are not uploaded.
  bool trains = false;
  // Layers with the same map share it.
  bool reuse_maps = true;
  // Maps outlive a run and serve later runs on the same CoordinateSet. Otherwise each is freed
  // after its last layer.
  bool keep_maps = false;
  // The voxels of the input are sorted by their keys before the first layer, once a frame unless
  // maps are kept, and what a run gives back on these voxels has the rows of the input again. Maps
  // of rows that come in another order then take as long as those of sorted rows. Refused for
  // backends without voxel operators, and for training.
  bool reorder_input = false;
  // An asynchronous backend builds maps ahead of their layers, on streams beside the one that
  // computes, unless stages are profiled. The computing stream waits for a map where its first
  // layer comes. Otherwise, and where memory does not suffice for this, each map is built when its
  // first layer comes.
  bool parallel_maps = true;
  // Run times each layer's stages, keeps its counters, and waits for the results. Otherwise Run
  // queues the work, waits only where the host must know a size, and reports no layers.
  bool profile_stages = true;
  // Reports of layers tell the pairs of each map, and what dataflows count by them. Where only the
  // device knows the pairs, the host waits for each map, so that the times of later stages include
  // the time to queue them. Without it, such pairs are not reported. Only with profile_stages.
  bool count_pairs = true;
  // Names of layers, as the graph has them after folding, whose tensors a run gives back
  // (RunResult::kept). They stay in memory, and no layer that comes behind one is fused with it.
  std::vector<std::string> keep_layers = {};
};

// What runs a layer. The CompiledNetwork owns the plugins. A plugin that the layer does not need is
// null.
struct LayerSetup {
  std::optional<ConvGeometry> geometry;
  const Mapping* mapping = nullptr;
  const Dataflow* dataflow = nullptr;
  PerPass<ConvShape> shapes;                    // of a convolution
  bool fuses_epilogue = false;                  // the dataflow applies the epilogue as it stores
  bool strides_rows = false;                    // and rows of its tensors may have gaps
  const OutputCoords* output_coords = nullptr;  // of the layer that first needs a coordinate set
  LayerChoice specs;                            // canonical; empty where no plugin runs
};

// The parameters of a layer in the backend's memory. A convolution or linear layer has weights. It
// has a shift if it has a bias or its tail (Schedule) shifts the sum, and a scale if its tail has a
// batch norm. A batch norm that runs by itself has scale and shift. The other arrays are empty.
struct LayerParameters {
  Tensor weights;  // [K * C_in, C_out]
  // The same weights as the layer's dataflow reads them, or null.
  std::unique_ptr<const PreparedWeights> prepared_weights;
  Array<float> scale, shift;
};

// Coordinate sets that are made together, each of the one before it.
struct CoordinateChain {
  int from = 0;  // the set that the first is made of
  std::vector<int> sets;
  std::vector<ConvGeometry> geometries;  // by set
  const OutputCoords* output_coords = nullptr;
  int node = 0;  // the layer that first needs one of them
};

// A dataflow's plan. Layers of one map, dataflow, pass and shape share it.
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
  std::vector<PerPass<int>> plans_of_node;  // -1 where no dataflow runs the pass
  Schedule schedule;
  std::vector<int> kept;  // the nodes of RunConfig::keep_layers

  std::map<std::string, std::unique_ptr<const Mapping>> mappings;  // by canonical spec
  std::map<std::string, std::unique_ptr<const Dataflow>> dataflows;
  std::map<std::string, std::unique_ptr<const OutputCoords>> output_coords;
};

// Refuses parameters without values, unknown layers to keep, unknown plugins and options, and
// layers and precisions that the plugins or the backend do not support. The message names the
// layer.
absl::StatusOr<std::unique_ptr<CompiledNetwork>> CompileNetwork(NetworkGraph graph,
                                                                const RunConfig& config,
                                                                const Registry& registry,
                                                                const ExecutionContext& context);

// `status` with the layer's name in front of its message.
absl::Status InLayer(const Node& node, const absl::Status& status);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_COMPILED_NETWORK_H_
