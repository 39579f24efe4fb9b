// SPDX-License-Identifier: Apache-2.0
// What `voxconv run` says of a network.
#ifndef VOXCONV_CLI_RUN_REPORT_H_
#define VOXCONV_CLI_RUN_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"
#include "voxconv/cli/session.h"
#include "voxconv/core/backend.h"
#include "voxconv/io/voxelize.h"
#include "voxconv/measure/preset.h"
#include "voxconv/measure/result_line.h"
#include "voxconv/networks/graph.h"
#include "voxconv/networks/report.h"

namespace voxconv::cli {

// How long the network took: the run that the stages are of, or the medians of more that were not
// profiled.
struct Frames {
  int count = 0;
  double wall_ms = 0;
  double queued_ms = 0;    // how long the host was busy queueing
  double replayed_ms = 0;  // wall time of replays of a CUDA graph; 0: there were none
  double replay_queued_ms = 0;
  int64_t synchronisations = 0;  // most of one frame, without the one that its time ends with

  std::string wall_name() const {
    if (count == 0) return "wall time";
    return absl::StrFormat("median wall time of %d frames without stage times (queued in %.2f ms)",
                           count, queued_ms);
  }
};

// What came before the frames that are measured.
struct Start {
  double backend_ms = 0;  // until the backend was there: threads, or the driver and its context
  double network_ms = 0;  // until the network was ready: plugins and parameters in the backend
  // The first frame of this process, from coordinates and features in the backend's memory to its
  // results: it loads kernels, allocates and plans. None: something else ran a frame before it.
  std::optional<double> first_frame_ms;
};

// `verbose`: with each layer's dataflow and the kernel that ran.
void PrintLayerTable(const RunReport& report, bool verbose);
void PrintTotals(const RunReport& report, const Start& start, const Frames& frames,
                 Backend& backend);
void PrintMapSizes(const RunReport& report);

// Multiply-adds a second at the peak of the fastest processors of this kind.
double PeakRate(const Backend& backend);
// A line for where one run takes a minute or more at this rate, and else "". This is a bound from
// below, so that it is true on every machine: the layers on the input's own voxels alone, whose
// pairs are known.
std::string HowLong(const NetworkGraph& graph, const VoxelizedCloud& cloud, double rate);

// The result line.
measure::Json ResultJson(const po::variables_map& values, const measure::Configuration& config,
                         const VoxelizedCloud& cloud, const RunReport& report, const Start& start,
                         const Frames& frames, const Backend& backend);

}  // namespace voxconv::cli

#endif  // VOXCONV_CLI_RUN_REPORT_H_
