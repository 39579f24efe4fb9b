// Launches that go to the device together.
#ifndef VOXCONV_BACKENDS_CUDA_LAUNCH_BATCH_H_
#define VOXCONV_BACKENDS_CUDA_LAUNCH_BATCH_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace voxconv {

// Between Begin and End what is queued on a stream is captured, and End launches it as one CUDA
// graph: capturing a launch takes the host a fifth of queueing it. Graphs are kept by the kernels
// they were made of, as instantiating one costs far more than giving it new arguments; those of one
// batch are launched on one stream alone, so that none waits for another stream's use of it.
class LaunchBatch {
 public:
  LaunchBatch() = default;
  ~LaunchBatch() { Clear(); }
  LaunchBatch(const LaunchBatch&) = delete;
  LaunchBatch& operator=(const LaunchBatch&) = delete;

  bool open() const { return stream_ != nullptr; }
  // None may be open (checked). Until End the host must not wait for the stream, nor take memory
  // from a pool on it. The error of the runtime's call.
  absl::Status Begin(cudaStream_t stream);
  // `what` distinguishes what is queued next, as the kernel's address does.
  void Note(const void* what) {
    if (open()) signature_ = (signature_ ^ reinterpret_cast<uintptr_t>(what)) * kMix;
  }
  // Queues what was captured, also after an error of the work, and does not wait; does nothing
  // where none is open. The error of the runtime's call; then all of it is lost.
  absl::Status End();
  // Frees the graphs; those under way end first.
  void Clear();

 private:
  static constexpr uint64_t kMix = 0x9E3779B97F4A7C15;

  absl::Status Launch(cudaGraph_t graph, cudaStream_t stream);

  cudaStream_t stream_ = nullptr;  // while open
  uint64_t signature_ = 0;
  absl::flat_hash_map<uint64_t, cudaGraphExec_t> executables_;
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_LAUNCH_BATCH_H_
