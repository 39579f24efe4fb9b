// Independent work on several streams at once.
#ifndef VOXCONV_BACKENDS_CUDA_STREAM_FORK_H_
#define VOXCONV_BACKENDS_CUDA_STREAM_FORK_H_

#include <vector>

#include "absl/status/status.h"
#include "backends/cuda/cuda_backend.h"
#include "core/backend.h"

namespace voxconv {

// Branches of a context's stream: what is queued on one comes after all that was queued on the
// stream before Open, and before all that is queued there after Join. Ordered by events; the host
// never waits. One fork of a backend is open at a time.
class StreamFork {
 public:
  explicit StreamFork(const ExecutionContext& context) : branches_{context} {}
  ~StreamFork() { Join().IgnoreError(); }  // what an error left open
  StreamFork(const StreamFork&) = delete;
  StreamFork& operator=(const StreamFork&) = delete;

  // `branches` >= 1, the context's own stream among them.
  absl::Status Open(int branches);
  int size() const { return static_cast<int>(branches_.size()); }
  const ExecutionContext& branch(int i) const { return branches_[i]; }
  absl::Status Join();

 private:
  std::vector<ExecutionContext> branches_;  // [0]: the context itself
  std::vector<cudaEvent_t> events_;         // of branch i + 1
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_STREAM_FORK_H_
