// Runs a network on a backend.
#ifndef VOXCONV_NETWORKS_EXECUTOR_H_
#define VOXCONV_NETWORKS_EXECUTOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/backend.h"
#include "core/coordinate_set.h"
#include "core/registry.h"
#include "core/tensor.h"
#include "core/workspace.h"
#include "networks/compiled_network.h"
#include "networks/graph.h"
#include "networks/map_store.h"
#include "networks/report.h"

namespace voxconv {

struct RunResult {
  Tensor features;               // of the graph's output node, in the network's dtype
  CoordinateSetPtr coordinates;  // its rows; null after global pooling
  RunReport report;
};

// One frame of a runner, recorded: replays compute it anew from whatever its features are by then,
// on the same coordinates. Must not outlive its runner.
class RecordedFrame {
 public:
  // Queues the frame on the backend's main stream.
  absl::Status Replay() { return recording_->Replay(); }
  // Of the last replay that has been queued, at the same address each time; without a report.
  const RunResult& result() const { return result_; }

 private:
  friend class NetworkRunner;
  explicit RecordedFrame(const CompiledNetwork& network) : maps_(network) {}

  MapStore maps_;
  Workspace workspace_;
  RunResult result_;
  std::unique_ptr<Recording> recording_;  // the last: it refers to all the memory above
};

// A network ready to run any number of times. Parameters are uploaded once, when it is made. Not
// thread-safe: one runner a stream.
class NetworkRunner {
 public:
  // Errors as in CompileNetwork. `backend` must outlive the runner and its results; `registry` need
  // not.
  static absl::StatusOr<std::unique_ptr<NetworkRunner>> Create(NetworkGraph graph,
                                                               const RunConfig& config,
                                                               const Registry& registry,
                                                               Backend& backend);

  // `features`: [N, in_channels] in the backend's memory, f32 (converted there) or in the network's
  // dtype, row i on coordinates->rows()[i]; never written. Refuses shapes and tensor strides that
  // do not fit the graph. A tensor is freed after its last consumer, and element-wise layers work
  // in place where they are that consumer. An error names its layer.
  //
  // Synchronises the stream if stages are profiled. Otherwise the results are queued on the
  // backend's main stream when this returns, and the arguments must live until they are there. The
  // host waits where a size must be known, on CUDA: once for the output coordinates of each chain
  // of strided layers with one plugin (or more often, see OutputCoords::ComputeChain), once for the
  // pairs of each map that a dataflow or pooling takes in a layout other than a table, once a
  // global pooling, and as often as a mapping must to build an index: perfect_hash, octree and the
  // cuckoo table do, the others do not. An error of work that is only queued comes from a later
  // synchronisation. Backend::synchronisations counts these waits.
  absl::StatusOr<RunResult> Run(const CoordinateSetPtr& coordinates, const TensorView& features);

  // Records a frame for replays, after a plain run that makes maps, plans and workspace of the
  // recorded frame's own. Every replay reads `features` anew: they must outlive the result.
  // kFailedPrecondition without RunConfig::keep_maps, and where a plugin waits for the device or
  // copies from the host as it runs; kUnimplemented on the CPU; else errors as of Run.
  absl::StatusOr<std::unique_ptr<RecordedFrame>> Record(const CoordinateSetPtr& coordinates,
                                                        const TensorView& features);

  // As run: after folding, without host copies of the parameters.
  const NetworkGraph& graph() const { return network_->graph; }
  const CompiledNetwork& network() const { return *network_; }
  // RunConfig's, from the next run on.
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
