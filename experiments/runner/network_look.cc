// SPDX-License-Identifier: Apache-2.0
#include "voxconv/experiments/runner/network_look.h"

#include <memory>
#include <utility>

#include "voxconv/io/voxelize.h"
#include "voxconv/measure/checked_maps.h"
#include "voxconv/measure/network_frame.h"
#include "voxconv/networks/executor.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"

namespace voxconv::experiment {

using measure::Json;

absl::StatusOr<Json> LookAtNetwork(const ab::NetworkShape& shape,
                                   const measure::Configuration& configuration, Precision precision,
                                   const VoxelizedCloud& cloud, uint64_t seed,
                                   const Registry& registry, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(NetworkGraph graph, MakeModel(shape.name, {.width = shape.width}));
  InitializeParameters(graph, seed);
  VOXCONV_ASSIGN_OR_RETURN(const SparseTensor input,
                           MakeSparseTensor(cloud, graph.in_channels(), context));
  // What is reported of a map must be right, and no dataflow may read rows by a wrong one.
  VOXCONV_ASSIGN_OR_RETURN(
      const Registry checked,
      measure::WithCheckedMaps(registry, [](absl::string_view) { return true; }));
  RunConfig config;
  config.parallel_maps = false;  // a check waits for its map
  config.planner = measure::MakePlanner(configuration);
  config.precision = precision;
  VOXCONV_ASSIGN_OR_RETURN(
      const std::unique_ptr<NetworkRunner> runner,
      NetworkRunner::Create(std::move(graph), config, checked, *context.backend));
  VOXCONV_ASSIGN_OR_RETURN(const RunResult result, runner->Run(input.view()));
  Json layers = Json::array();
  for (const LayerReport& layer : result.report.layers) {
    if (!layer.dataflow.empty()) layers.push_back(measure::LayerJson(layer));
  }
  return layers;
}

}  // namespace voxconv::experiment
