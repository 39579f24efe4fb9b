#include "cli/network_frame.h"

#include <chrono>
#include <cmath>
#include <utility>

#include "cli/verify/matrix.h"
#include "experiments/harness/preset.h"

namespace voxconv::cli {

LayerChoice DefaultLayerChoice(BackendKind backend) {
  if (backend == BackendKind::kCuda) return {"hash", "implicit_gemm:mask_sort=rarest", "fused"};
  return {"sorted_search", "fetch_on_demand", harness::kDefaultOutputCoords};
}

absl::StatusOr<FrameTime> TimeFrame(NetworkRunner& runner, const CoordinateSetPtr& coordinates,
                                    const TensorView& features, const ExecutionContext& context,
                                    RunResult& result) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  FrameTime time;
  const Clock::time_point start = Clock::now();
  VOXCONV_ASSIGN_OR_RETURN(RunResult outcome, runner.Run(coordinates, features));
  time.queued_ms = since(start);
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  time.wall_ms = since(start);
  result = std::move(outcome);  // what it replaces is freed outside of the time
  return time;
}

double NetworkBound(const NetworkGraph& graph, DType dtype) {
  double sum = 0;
  for (int id : graph.Convolutions()) {
    const Node& node = graph.node(id);
    const int64_t volume =
        int64_t{node.geometry.kernel.x} * node.geometry.kernel.y * node.geometry.kernel.z;
    const double bound = verify::ErrorBound(dtype, volume * graph.InputChannels(node));
    sum += bound * bound;
  }
  return 2 * std::sqrt(sum);
}

}  // namespace voxconv::cli
