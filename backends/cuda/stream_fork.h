// SPDX-License-Identifier: Apache-2.0
// Independent work on several streams at once.
#ifndef VOXCONV_BACKENDS_CUDA_STREAM_FORK_H_
#define VOXCONV_BACKENDS_CUDA_STREAM_FORK_H_

#include <vector>

#include "absl/status/status.h"
#include "voxconv/backends/cuda/cuda_backend.h"
#include "voxconv/core/backend.h"

namespace voxconv {

// Branches of a context's stream. Work that is queued on a branch runs after all work that was
// queued on the stream before Open. Work that is queued on the stream after Join runs after all
// work of the branches. Events order the streams; no function synchronises. A backend can have one
// open fork at a time.
class StreamFork {
 public:
  explicit StreamFork(const ExecutionContext& context) : branches_{context} {}
  ~StreamFork() { Join().IgnoreError(); }  // for callers that return early with an error
  StreamFork(const StreamFork&) = delete;
  StreamFork& operator=(const StreamFork&) = delete;

  // Opens `branches` >= 1 branches. Branch 0 is the context's own stream. Called once, or again
  // after Join. Returns the error of the runtime's call, and errors of launches that were kept
  // back.
  absl::Status Open(int branches);
  int size() const { return static_cast<int>(branches_.size()); }
  // The context of branch `i`. Valid until Join, except that of branch 0.
  const ExecutionContext& branch(int i) const { return branches_[i]; }
  // Ends all branches but 0. Returns the first error; it still ends the others then.
  absl::Status Join();

 private:
  std::vector<ExecutionContext> branches_;  // [0]: the context itself
  std::vector<cudaEvent_t> events_;         // [i]: the event of branch i + 1
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_STREAM_FORK_H_
