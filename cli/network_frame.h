// What commands that run whole networks share.
#ifndef VOXCONV_CLI_NETWORK_FRAME_H_
#define VOXCONV_CLI_NETWORK_FRAME_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "experiments/harness/result_line.h"
#include "networks/executor.h"

namespace voxconv::cli {

// Whole networks' plugins where none are named.
LayerChoice DefaultLayerChoice(BackendKind backend);

// Milliseconds of one run whose input is on the device already.
struct FrameTime {
  double queued_ms = 0;  // until Run returned
  double wall_ms = 0;    // until its results were there
  // How often the host waited for the device in queued_ms (Backend::synchronisations).
  int64_t synchronisations = 0;
};
// Runs once, puts the outcome into `result` and synchronises.
absl::StatusOr<FrameTime> TimeFrame(NetworkRunner& runner, const CoordinateSetPtr& coordinates,
                                    const TensorView& features, const ExecutionContext& context,
                                    RunResult& result);

// Likewise of one replay.
absl::StatusOr<FrameTime> TimeReplay(RecordedFrame& frame, const ExecutionContext& context);

// Whether `replayed` is what a run of the network gave: bitwise if all its dataflows are
// deterministic, else norm-wise within NetworkBound.
absl::Status CheckReplay(const NetworkRunner& runner, const Tensor& replayed, const Tensor& run,
                         const ExecutionContext& context);

// A layer's line in results, without times: {"name", "op", "fused_into", "geometry", "c_in",
// "c_out", "n_in", "n_out", "pairs", "map_sizes", "mapping", "dataflow", "map", "counters"}.
harness::Json LayerJson(const LayerReport& layer);

// On the norm-wise difference of two runs of `graph` in `dtype`, each off by as much. Rounding
// errors of the layers are independent, so their squares add up.
double NetworkBound(const NetworkGraph& graph, DType dtype);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_NETWORK_FRAME_H_
