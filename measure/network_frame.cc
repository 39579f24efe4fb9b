// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/network_frame.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/measure/timer.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/network_bound.h"

namespace voxconv::measure {
namespace {

// Times `queue`, and then until what it queued is done.
template <typename Queue>
absl::StatusOr<FrameTime> Time(const Queue& queue, const ExecutionContext& context) {
  FrameTime time;
  const int64_t waits_before = context.backend->synchronisations();
  const Timer timer;
  VOXCONV_RETURN_IF_ERROR(queue());
  time.queued_ms = timer.Milliseconds();
  time.synchronisations = context.backend->synchronisations() - waits_before;
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  time.wall_ms = timer.Milliseconds();
  return time;
}

}  // namespace

absl::StatusOr<FrameTime> TimeFrame(NetworkRunner& runner, const SparseTensorView& input,
                                    const ExecutionContext& context, RunResult& result) {
  RunResult outcome;
  const auto run = [&]() -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(outcome, runner.Run(input));
    return absl::OkStatus();
  };
  VOXCONV_ASSIGN_OR_RETURN(const FrameTime time, Time(run, context));
  result = std::move(outcome);  // what it replaces is freed outside of the time
  return time;
}

absl::StatusOr<FrameTime> TimeReplay(RecordedFrame& frame, const ExecutionContext& context) {
  return Time([&] { return frame.Replay(); }, context);
}

absl::Status CheckReplay(const NetworkRunner& runner, const Tensor& replayed, const Tensor& run,
                         const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output, replayed.ToHost(context));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> expected, run.ToHost(context));
  const std::vector<LayerSetup>& layers = runner.network().layers;
  const bool bitwise = std::all_of(layers.begin(), layers.end(), [](const LayerSetup& layer) {
    return layer.dataflow == nullptr ||
           layer.dataflow->CapabilityOf(Pass::kForward, layer.shapes[0]).deterministic;
  });
  const double bound =
      bitwise ? 0 : verify::NetworkBound(runner.graph(), runner.network().config.precision);
  return verify::CompareOutputs(output, expected, bound, "the frame that was run").status();
}

Json LayerJson(const LayerReport& layer) {
  return {{"name", layer.name},
          {"op", layer.op},
          {"fused_into", layer.fused_into},
          {"geometry", layer.geometry},
          {"c_in", layer.c_in},
          {"c_out", layer.c_out},
          {"n_in", layer.n_in},
          {"n_out", layer.n_out},
          {"pairs", layer.pairs},
          {"map_sizes", layer.map_sizes},
          {"mapping", layer.mapping},
          {"dataflow", layer.dataflow},
          {"kernel", layer.kernel},
          {"map", ToString(layer.map_origin)},
          {"counters", measure::ToJson(layer.profile.counters)}};
}

}  // namespace voxconv::measure
