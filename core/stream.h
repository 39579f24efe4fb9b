// SPDX-License-Identifier: Apache-2.0
// Queues of work, work beside them, and work that is recorded.
#ifndef VOXCONV_CORE_STREAM_H_
#define VOXCONV_CORE_STREAM_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace voxconv {

struct ExecutionContext;

// An ordered queue of work. A backend that works at once has done the work when the call that
// queued it returns.
class Stream {
 public:
  virtual ~Stream() = default;
  // Blocks the host until all work that was queued is done. Returns the first error of that work.
  virtual absl::Status Synchronize() = 0;
  // Whether all work that was queued is known to be done without an error. Does not wait.
  virtual bool IsIdle() { return false; }
  // After Collect, the stream may keep work back and hand it to the device in one piece, which
  // costs the host less. Submit hands over what was kept back. Synchronize does so too, and so does
  // every operation that involves the host or another stream. The stream then no longer keeps work
  // back, until Collect is called again. Errors of work that was kept back are returned by Submit
  // or by the operation that handed it over. All of that work is lost then.
  virtual absl::Status Collect() { return absl::OkStatus(); }
  virtual absl::Status Submit() { return absl::OkStatus(); }
  // The cudaStream_t on CUDA, null on the CPU. To wait for work, call Synchronize, which also hands
  // over what was kept back; a wait on the handle does not.
  virtual void* native_handle() = 0;
};

// Work that may run at the same time as one stream, the trunk. It is split into lanes. Work of one
// lane runs in the order in which it was given; lanes are not ordered among each other. The trunk
// waits for a piece of work only where Wait or Join says so. No method blocks the host.
//
// Memory that a piece of work allocates belongs to its lane. Later work of the lane may use it.
// Work of the trunk may use it after Wait. Memory of the trunk that a lane uses must live until
// Wait or Join.
class Branches {
 public:
  using Work = std::function<absl::Status(const ExecutionContext&)>;

  virtual ~Branches() = default;  // calls Join
  // Calls `work` with a context whose stream belongs to `lane` (0 or more). Lanes other than 0 may
  // share a stream. What `work` queues runs after all that was queued on the trunk before the
  // branches were opened, after earlier work of the lane, and after the pieces named to Follow.
  // `work` may itself use the trunk and call Run. Only work in lane 0 may make the trunk free
  // memory that lanes have made. Returns the number of this piece, or the error of `work`.
  virtual absl::StatusOr<int> Run(int lane, const Work& work) = 0;
  // Every piece that is given to Run from now on runs after piece `number`.
  virtual absl::Status Follow(int number) = 0;
  // What is queued on the trunk from now on runs after piece `number`.
  virtual absl::Status Wait(int number) = 0;
  // What is queued on the trunk from now on runs after all pieces, those that failed included.
  virtual absl::Status Join() = 0;
};

// Work that was recorded once and can be queued any number of times.
class Recording {
 public:
  virtual ~Recording() = default;
  // Queues the recorded work on the stream that it was recorded for. Does not synchronise. Returns
  // the backend's error if the work cannot be queued.
  virtual absl::Status Replay() = 0;
};

// Records work. A backend that works at once has none (Backend::recorder).
class Recorder {
 public:
  using Work = std::function<absl::Status(const ExecutionContext&)>;

  virtual ~Recorder() = default;
  // Calls `work` once. What it queues on the context's stream is recorded and not run. The
  // recording keeps the addresses that the work was queued with. It owns the memory that `work`
  // allocates and frees. Memory that `work` still holds at its end, and all other memory that it
  // reads or writes, must outlive the recording. kFailedPrecondition if `work` makes the host wait
  // for the device, or copies to or from host memory.
  virtual absl::StatusOr<std::unique_ptr<Recording>> Record(const ExecutionContext& context,
                                                            const Work& work) = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_STREAM_H_
