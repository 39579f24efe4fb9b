// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/executor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/networks/input_check.h"

namespace voxconv {

absl::StatusOr<std::unique_ptr<NetworkRunner>> NetworkRunner::Create(NetworkGraph graph,
                                                                     const RunConfig& config,
                                                                     const Registry& registry,
                                                                     Backend& backend) {
  const ExecutionContext context{&backend, &backend.main_stream(), nullptr};
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<CompiledNetwork> network,
                           CompileNetwork(std::move(graph), config, registry, context));
  return std::unique_ptr<NetworkRunner>(new NetworkRunner(std::move(network), backend));
}

absl::StatusOr<RunResult> NetworkRunner::Run(const SparseTensorView& input) {
  VOXCONV_RETURN_IF_ERROR(CheckNetworkInput(*network_, backend_, input));
  absl::StatusOr<RunResult> result =
      Execute(*network_, network_->config.profile_stages, input, maps_, workspace_, backend_);
  // After an error, the work of some maps may never have been done.
  if (!network_->config.keep_maps || !result.ok()) maps_.Clear();
  return result;
}

absl::StatusOr<std::unique_ptr<RecordedFrame>> NetworkRunner::Record(
    const SparseTensorView& input) {
  if (!network_->config.keep_maps) {
    return absl::FailedPreconditionError(
        "a frame that builds its maps anew cannot be recorded, because their sizes are known only "
        "while it runs; keep_maps is needed");
  }
  Recorder* const recorder = backend_.recorder();
  if (recorder == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("backend ", ToString(backend_.kind()),
                     ": work is done when it is queued, so none can be recorded"));
  }
  VOXCONV_RETURN_IF_ERROR(CheckNetworkInput(*network_, backend_, input));
  std::unique_ptr<RecordedFrame> frame(new RecordedFrame(*network_));
  const auto run = [&](const ExecutionContext&) -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(frame->result_, Execute(*network_, /*profiled=*/false, input,
                                                     frame->maps_, frame->workspace_, backend_));
    return absl::OkStatus();
  };
  const ExecutionContext context{&backend_, &backend_.main_stream(), nullptr};
  // Makes the maps and plans, and the workspace as large as it gets.
  VOXCONV_RETURN_IF_ERROR(run(context));
  frame->result_ = RunResult();
  VOXCONV_ASSIGN_OR_RETURN(frame->recording_, recorder->Record(context, run));
  return frame;
}

}  // namespace voxconv
