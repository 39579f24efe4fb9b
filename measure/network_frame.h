// SPDX-License-Identifier: Apache-2.0
// Runs of whole networks: timed, compared and described.
#ifndef VOXCONV_MEASURE_NETWORK_FRAME_H_
#define VOXCONV_MEASURE_NETWORK_FRAME_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "voxconv/measure/result_line.h"
#include "voxconv/networks/executor.h"
#include "voxconv/verify/network_bound.h"

namespace voxconv::measure {

// The times of one run whose input is on the device already.
struct FrameTime {
  double queued_ms = 0;  // until Run returned
  double wall_ms = 0;    // until its results were complete
  // How often the host waited for the device in queued_ms (Backend::synchronisations).
  int64_t synchronisations = 0;
};
// Runs once, puts the result into `result` and synchronises the context's stream.
absl::StatusOr<FrameTime> TimeFrame(NetworkRunner& runner, const SparseTensorView& input,
                                    const ExecutionContext& context, RunResult& result);

// The same for one replay.
absl::StatusOr<FrameTime> TimeReplay(RecordedFrame& frame, const ExecutionContext& context);

// Checks that `replayed`, the output of a replay, agrees with `run`, the output of a plain run.
// They must be bitwise equal if all dataflows of the network are deterministic. Otherwise they must
// agree norm-wise within verify::NetworkBound. kInternal if they do not. Synchronises the stream.
absl::Status CheckReplay(const NetworkRunner& runner, const Tensor& replayed, const Tensor& run,
                         const ExecutionContext& context);

// A layer's line in results, without times: {"name", "op", "fused_into", "geometry", "c_in",
// "c_out", "n_in", "n_out", "pairs", "map_sizes", "mapping", "dataflow", "map", "counters"}.
Json LayerJson(const LayerReport& layer);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_NETWORK_FRAME_H_
