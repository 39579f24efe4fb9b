// SPDX-License-Identifier: Apache-2.0
// One run of a compiled network.
#ifndef VOXCONV_NETWORKS_EXECUTION_H_
#define VOXCONV_NETWORKS_EXECUTION_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/sparse_tensor.h"
#include "voxconv/core/workspace.h"
#include "voxconv/networks/compiled_network.h"
#include "voxconv/networks/map_store.h"
#include "voxconv/networks/report.h"

namespace voxconv {

struct RunResult {
  // The tensor of the graph's output node, stored as StorageOf(RunConfig::precision). It has no
  // coordinates after a global pooling, where rows are batch samples.
  SparseTensor output;
  RunReport report;
  // The tensors of RunConfig::keep_layers by name, as `output`; all but that of the output node.
  std::map<std::string, SparseTensor> kept;
};

// Runs the layers on the backend's main stream with maps of `maps` and scratch memory of
// `workspace`. `profiled`: as RunConfig::profile_stages. `input` fits the network.
// NetworkRunner::Run says what else holds.
absl::StatusOr<RunResult> Execute(const CompiledNetwork& network, bool profiled,
                                  const SparseTensorView& input, MapStore& maps,
                                  Workspace& workspace, Backend& backend);

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_EXECUTION_H_
