// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/launch_batch.h"

#include <cstddef>
#include <utility>

#include "voxconv/backends/cuda/cuda_check.h"
#include "voxconv/core/check.h"

namespace voxconv {
namespace {

// A network has some thirty batches. With more graphs than this, all are freed and made again.
constexpr size_t kMaxGraphs = 1024;

}  // namespace

absl::Status LaunchBatch::Begin(cudaStream_t stream) {
  VOXCONV_CHECK(!open());
  // Relaxed, because stricter modes forbid calls in the whole thread that other streams make
  // meanwhile, and that loading a kernel makes on its first use.
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  stream_ = stream;
  signature_ = 0;
  return absl::OkStatus();
}

absl::Status LaunchBatch::End() {
  if (!open()) return absl::OkStatus();
  const cudaStream_t stream = std::exchange(stream_, nullptr);
  cudaGraph_t graph = nullptr;
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaStreamEndCapture(stream, &graph));
  absl::Status status = Launch(graph, stream);
  cudaGraphDestroy(graph);
  return status;
}

absl::Status LaunchBatch::Launch(cudaGraph_t graph, cudaStream_t stream) {
  size_t nodes = 0;
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaGraphGetNodes(graph, nullptr, &nodes));
  if (nodes == 0) return absl::OkStatus();
  if (executables_.size() >= kMaxGraphs) Clear();
  cudaGraphExec_t& executable = executables_[(signature_ ^ nodes) * kMix];
  if (executable != nullptr) {
    cudaGraphExecUpdateResultInfo result{};
    if (cudaGraphExecUpdate(executable, graph, &result) != cudaSuccess) {
      (void)cudaGetLastError();
      cudaGraphExecDestroy(std::exchange(executable, nullptr));
    }
  }
  if (executable == nullptr) {
    VOXCONV_RETURN_IF_CUDA_ERROR(cudaGraphInstantiateWithFlags(&executable, graph, 0));
  }
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaGraphLaunch(executable, stream));
  return absl::OkStatus();
}

void LaunchBatch::Clear() {
  for (const auto& [signature, executable] : executables_) {
    if (executable != nullptr) cudaGraphExecDestroy(executable);
  }
  executables_.clear();
}

}  // namespace voxconv
