// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/cuda_recording.h"

#include <algorithm>
#include <utility>

#include "voxconv/backends/cuda/cuda_check.h"
#include "voxconv/backends/cuda/cuda_stream.h"

namespace voxconv {

CudaBackend::CudaRecording::~CudaRecording() {
  static_cast<CudaStream*>(context_.stream)->SubmitForLater();
  // Both take effect after the replays that are queued already.
  if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  for (auto& [owner, blocks] : freed_) {
    blocks.Clear([this](void* block, int64_t) { cudaFreeAsync(block, stream_); });
  }
  backend_.in_use_ -= held_;
  if (memory_stream_ != nullptr) cudaStreamDestroy(memory_stream_);
}

absl::Status CudaBackend::CudaRecording::Record(const Recorder::Work& work) {
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&memory_stream_, cudaStreamNonBlocking));
  // The blocks that streams keep go back to the pool. No work uses them after the waits.
  backend_.ReleaseCached();
  for (CudaStream* stream : backend_.streams_) VOXCONV_RETURN_IF_ERROR(stream->Synchronize());
  cudaGraph_t graph = nullptr;
  absl::Status status = Capture(work, graph);
  if (status.ok()) {
    const cudaError_t error = cudaGraphInstantiateWithFlags(&executable_, graph, 0);
    if (error != cudaSuccess)
      status = CudaError(error, "cudaGraphInstantiateWithFlags", __FILE__, __LINE__);
  }
  if (graph != nullptr) cudaGraphDestroy(graph);
  VOXCONV_RETURN_IF_ERROR(status);
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaGraphUpload(executable_, stream_));
  return absl::OkStatus();
}

absl::Status CudaBackend::CudaRecording::Capture(const Recorder::Work& work, cudaGraph_t& graph) {
  // Relaxed, because memory is taken from the pool meanwhile, on another stream.
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  backend_.recording_ = this;
  ExecutionContext recorded = context_;
  recorded.profile = nullptr;  // nothing runs, so there are no times
  absl::Status status = work(recorded);
  backend_.recording_ = nullptr;
  const auto end = [&]() -> absl::Status {
    VOXCONV_RETURN_IF_CUDA_ERROR(cudaStreamEndCapture(stream_, &graph));
    // No other code waits for the stream that the memory came from.
    ++backend_.synchronisations_;
    VOXCONV_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(memory_stream_));
    return absl::OkStatus();
  };
  status.Update(end());
  for (const FreedBuffer& buffer : others_) buffer.owner->Free(buffer.data, buffer.bytes);
  others_.clear();
  for (const auto& [owner, blocks] : freed_) held_ += blocks.bytes();
  backend_.in_use_ += held_;
  backend_.peak_ = std::max(backend_.peak_, backend_.in_use_);
  return status;
}

absl::Status CudaBackend::CudaRecording::Replay() {
  VOXCONV_RETURN_IF_ERROR(context_.stream->Submit());
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaGraphLaunch(executable_, stream_));
  return absl::OkStatus();
}

cudaError_t CudaBackend::CudaRecording::TakeBlock(int64_t bytes, const CudaStream& owner,
                                                  void*& data) {
  const int64_t size = BlockCache::BlockSize(bytes);
  data = freed_[&owner].Take(size);
  if (data != nullptr) return cudaSuccess;
  const cudaError_t error = cudaMallocFromPoolAsync(&data, size, backend_.pool_, memory_stream_);
  if (error == cudaSuccess) blocks_.insert(data);
  return error;
}

void CudaBackend::CudaRecording::Free(void* data, int64_t bytes, CudaStream& owner) {
  if (!blocks_.contains(data)) {
    others_.push_back({data, bytes, &owner});
    return;
  }
  backend_.in_use_ -= bytes;
  freed_[&owner].Put(data, BlockCache::BlockSize(bytes));
}

absl::StatusOr<std::unique_ptr<Recording>> CudaBackend::CudaRecorder::Record(
    const ExecutionContext& context, const Work& work) {
  VOXCONV_CHECK(backend_.recording_ == nullptr && !backend_.branches_open_);
  if (CudaStreamOf(context) == cudaStreamLegacy) {
    return absl::FailedPreconditionError(
        "CUDA's legacy default stream cannot be recorded; a stream of its own is needed");
  }
  auto recording = std::make_unique<CudaRecording>(backend_, context);
  VOXCONV_RETURN_IF_ERROR(recording->Record(work));
  return recording;
}

}  // namespace voxconv
