// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/stream_fork.h"

#include "voxconv/backends/cuda/cuda_check.h"

namespace voxconv {

absl::Status StreamFork::Open(int branches) {
  VOXCONV_CHECK(branches >= 1 && size() == 1);
  const ExecutionContext trunk = branches_.front();
  if (branches > 1) VOXCONV_RETURN_IF_ERROR(trunk.stream->Submit());
  for (int i = 0; i + 1 < branches; ++i) {
    VOXCONV_ASSIGN_OR_RETURN(const CudaBackend::SideStream side, AsCuda(trunk).side_stream(i));
    // A wait refers to the last record before it, so Join can record the event again.
    VOXCONV_RETURN_IF_CUDA_ERROR(cudaEventRecord(side.event, CudaStreamOf(trunk)));
    VOXCONV_RETURN_IF_CUDA_ERROR(
        cudaStreamWaitEvent(static_cast<cudaStream_t>(side.stream->native_handle()), side.event));
    ExecutionContext branch = trunk;
    branch.stream = side.stream;
    branches_.push_back(branch);
    events_.push_back(side.event);
  }
  return absl::OkStatus();
}

absl::Status StreamFork::Join() {
  absl::Status status;
  if (size() > 1) status = branches_.front().stream->Submit();
  for (size_t i = 0; i < events_.size(); ++i) {
    const auto join = [&]() -> absl::Status {
      VOXCONV_RETURN_IF_CUDA_ERROR(cudaEventRecord(events_[i], CudaStreamOf(branches_[i + 1])));
      VOXCONV_RETURN_IF_CUDA_ERROR(
          cudaStreamWaitEvent(CudaStreamOf(branches_.front()), events_[i]));
      return absl::OkStatus();
    };
    status.Update(join());
  }
  branches_.resize(1);
  events_.clear();
  return status;
}

}  // namespace voxconv
