// SPDX-License-Identifier: Apache-2.0
// Launches that go to the device together, as one CUDA graph.
#ifndef VOXCONV_BACKENDS_CUDA_LAUNCH_BATCH_H_
#define VOXCONV_BACKENDS_CUDA_LAUNCH_BATCH_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace voxconv {

// Begin starts to capture the work that is queued on a stream. End launches that work as one CUDA
// graph. Capturing a launch costs the host a fifth of queueing it. Instantiating a graph costs far
// more than giving it new arguments, so executable graphs are kept, and found again by the sequence
// of kernels that they were made of. Each stream has a batch of its own, so that a graph never
// waits for its use on another stream.
class LaunchBatch {
 public:
  LaunchBatch() = default;
  ~LaunchBatch() { Clear(); }
  LaunchBatch(const LaunchBatch&) = delete;
  LaunchBatch& operator=(const LaunchBatch&) = delete;

  bool open() const { return stream_ != nullptr; }
  // The batch must not be open (checked). Until End, the host must not wait for the stream, and
  // must not take memory from a pool on it. Returns the error of the runtime's call.
  absl::Status Begin(cudaStream_t stream);
  // Must be called before each piece of work is queued. `what` identifies the work, as the kernel's
  // address does. Does nothing if the batch is not open.
  void Note(const void* what) {
    if (open()) signature_ = (signature_ ^ reinterpret_cast<uintptr_t>(what)) * kMix;
  }
  // Queues the captured work, also if a part of it failed. Does not synchronise. Does nothing if
  // the batch is not open. Returns the error of the runtime's call; all of the captured work is
  // lost then.
  absl::Status End();
  // Frees the kept graphs. A graph that still runs is freed when it has ended.
  void Clear();

 private:
  static constexpr uint64_t kMix = 0x9E3779B97F4A7C15;

  absl::Status Launch(cudaGraph_t graph, cudaStream_t stream);

  cudaStream_t stream_ = nullptr;  // null: not open
  uint64_t signature_ = 0;
  absl::flat_hash_map<uint64_t, cudaGraphExec_t> executables_;
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_LAUNCH_BATCH_H_
