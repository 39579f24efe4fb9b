// SPDX-License-Identifier: Apache-2.0
// Runs a network on a backend.
#ifndef VOXCONV_NETWORKS_EXECUTOR_H_
#define VOXCONV_NETWORKS_EXECUTOR_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/registry.h"
#include "voxconv/core/sparse_tensor.h"
#include "voxconv/core/workspace.h"
#include "voxconv/networks/compiled_network.h"
#include "voxconv/networks/execution.h"
#include "voxconv/networks/graph.h"
#include "voxconv/networks/map_store.h"

namespace voxconv {

// One frame of a runner, recorded. A replay computes it anew on the same coordinates, from whatever
// the features are by then. Must not outlive its runner.
class RecordedFrame {
 public:
  // Queues the frame on the backend's main stream.
  absl::Status Replay() { return recording_->Replay(); }
  // Of the last replay that was queued. It is at the same address each time, and has no report.
  const RunResult& result() const { return result_; }

 private:
  friend class NetworkRunner;
  explicit RecordedFrame(const CompiledNetwork& network) : maps_(network) {}

  MapStore maps_;
  Workspace workspace_;
  RunResult result_;
  std::unique_ptr<Recording> recording_;  // the last member: it refers to the memory of the others
};

// A network that can run any number of times. Its parameters are uploaded once, when it is made.
// Not thread-safe: each stream needs a runner of its own.
class NetworkRunner {
 public:
  // Errors of CompileNetwork. `backend` must outlive the runner and its results; `registry` need
  // not.
  static absl::StatusOr<std::unique_ptr<NetworkRunner>> Create(NetworkGraph graph,
                                                               const RunConfig& config,
                                                               const Registry& registry,
                                                               Backend& backend);

  // The features of `input` are [N, in_channels] in the backend's memory, f32 or stored as the
  // network's. f32 is converted on the backend. They are never written. kInvalidArgument for
  // shapes, tensor strides, dtypes and memory that do not fit the graph. An error of a layer names
  // the layer. A tensor is freed after the last layer that reads it. Element-wise layers work in
  // place where they are that layer.
  //
  // Synchronises the stream if stages are profiled. Otherwise the results are queued on the
  // backend's main stream when this returns, and `input` must live until they are computed. Errors
  // of queued work come from a later synchronisation. Backend::synchronisations counts the waits.
  //
  // On an asynchronous backend the host waits where it must know a size:
  // - for the output coordinates of each chain of strided layers with one plugin: once, or as often
  //   as the plugin must (OutputCoords::Begin);
  // - for each table that is turned into pairs, for a dataflow or a pooling: once;
  // - for a global pooling: once;
  // - for an index: as often as its mapping must. Most mappings do not wait.
  absl::StatusOr<RunResult> Run(const SparseTensorView& input);

  // Records a frame for replays, after a plain run that makes the maps, plans and workspace of the
  // recorded frame. Every replay reads the features of `input` anew, so they must outlive the
  // result. kFailedPrecondition without RunConfig::keep_maps, and where a plugin waits for the
  // device or copies from the host while it runs. kUnimplemented on a backend that records nothing.
  // Errors of Run otherwise.
  absl::StatusOr<std::unique_ptr<RecordedFrame>> Record(const SparseTensorView& input);

  // As run: after folding, without host copies of the parameters.
  const NetworkGraph& graph() const { return network_->graph; }
  const CompiledNetwork& network() const { return *network_; }
  // These change RunConfig, from the next run on.
  void set_profile_stages(bool profile) { network_->config.profile_stages = profile; }
  void set_count_pairs(bool count) { network_->config.count_pairs = count; }
  // Drops the maps that RunConfig::keep_maps has kept.
  void ClearMaps() { maps_.Clear(); }

 private:
  NetworkRunner(std::unique_ptr<CompiledNetwork> network, Backend& backend)
      : network_(std::move(network)), backend_(backend), maps_(*network_) {}

  std::unique_ptr<CompiledNetwork> network_;
  Backend& backend_;
  MapStore maps_;
  Workspace workspace_;
};

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_EXECUTOR_H_
