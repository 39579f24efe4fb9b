// Where memory lives and work is queued. Nothing above this line assumes host memory.
#ifndef VOXCONV_CORE_BACKEND_H_
#define VOXCONV_CORE_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/buffer.h"
#include "core/profile.h"
#include "core/status_macros.h"
#include "core/types.h"

namespace voxconv {

class KernelMap;
class TensorOps;
struct LayoutRequest;

// An ordered queue of work. On the CPU work is done when the call returns.
class Stream {
 public:
  virtual ~Stream() = default;
  // Blocks the host until everything queued so far is done; returns the first error of it.
  virtual absl::Status Synchronize() = 0;
  // From now on the stream may hold back what is queued on it, to hand it to the device together,
  // which costs the host less than one after the other. Submit hands over what is held back, and
  // ends it; so do Synchronize and whatever else takes the host's or another stream's part. Collect
  // says so again. An error of what was held back comes from Submit or what stands for it, not from
  // the call that queued it; all of it is lost then.
  virtual absl::Status Collect() { return absl::OkStatus(); }
  virtual absl::Status Submit() { return absl::OkStatus(); }
  // cudaStream_t on CUDA, null on the CPU. The host waits for it by Synchronize alone.
  virtual void* native_handle() = 0;
};

struct ExecutionContext;

// Work beside that of one stream, the trunk: what several lanes hold may run at the same time, and
// the trunk waits for a piece of it only where it says so. The host never waits.
//
// Memory that work allocates is its lane's: others of the lane may use it, and the trunk after
// Wait. What it uses of the trunk's must live until Wait or Join.
class Branches {
 public:
  using Work = std::function<absl::Status(const ExecutionContext&)>;

  virtual ~Branches() = default;  // joins
  // Calls `work` with a context whose stream comes after what was queued on the trunk when the
  // branches were opened, after earlier work of the same lane, and as Follow says. Any lane >= 0;
  // lanes other than 0 may share streams. `work` may use the trunk and call Run itself. What is
  // freed meanwhile of its stream's memory must not be in use on the trunk: work that lets the
  // trunk free what lanes have made belongs in lane 0. Returns the number that Wait and Follow
  // take, or the error of `work`.
  virtual absl::StatusOr<int> Run(int lane, const Work& work) = 0;
  // All that Run is given from now on comes after the work of this number.
  virtual absl::Status Follow(int number) = 0;
  // What is queued on the trunk from now on comes after the work of this number.
  virtual absl::Status Wait(int number) = 0;
  // The same for all work, also for what ended in an error.
  virtual absl::Status Join() = 0;
};

// Work that was recorded once, to be queued any number of times (Backend::Record).
class Recording {
 public:
  virtual ~Recording() = default;
  // Queues all of it on the stream that it was recorded for, and does not wait. The error of the
  // backend's call where it cannot be queued.
  virtual absl::Status Replay() = 0;
};

class Backend {
 public:
  using Work = std::function<absl::Status(const ExecutionContext&)>;

  virtual ~Backend() = default;

  virtual BackendKind kind() const = 0;
  // The device in words, for result files.
  virtual std::string DeviceName() const = 0;
  virtual MemorySpace memory_space() const = 0;

  // The stream used where the caller makes none of its own; owned by the backend.
  virtual Stream& main_stream() = 0;

  // Uninitialised memory, usable by work queued on `stream` from now on. kResourceExhausted says
  // how much was asked for and what is left.
  virtual absl::StatusOr<Buffer> Allocate(int64_t bytes, Stream& stream) = 0;
  // Queues a copy; either side may be host memory or this backend's. A copy to host memory is
  // complete only after Synchronize.
  virtual absl::Status Copy(void* to, MemorySpace to_space, const void* from,
                            MemorySpace from_space, int64_t bytes, Stream& stream) = 0;
  virtual absl::Status FillBytes(void* data, uint8_t value, int64_t bytes, Stream& stream) = 0;

  // Stage timing; called by StageScope only. `token` is what BeginStage returned.
  virtual int64_t BeginStage(Stage stage, Stream& stream) = 0;
  virtual void EndStage(int64_t token, Stage stage, Stream& stream, Profile* profile) = 0;
  // Makes all times recorded so far visible in their profiles.
  virtual absl::Status FlushStages() = 0;

  // Converts a map to another layout (see core/kernel_map.h). O(pairs + rows x offsets).
  virtual absl::StatusOr<KernelMap> ConvertKernelMap(const KernelMap& map,
                                                     const LayoutRequest& request,
                                                     const ExecutionContext& context) = 0;
  // The map with inputs and outputs exchanged: as canonical pairs, or as a neighbour table where
  // the map is a table whose pairs have not been counted, so that none need be.
  virtual absl::StatusOr<KernelMap> TransposeKernelMap(const KernelMap& map,
                                                       const ExecutionContext& context) = 0;
  // Exclusive prefix sum over the offsets of the pairs of each, K + 1 entries, of a map in table
  // layout (KernelMap::EnsureCounts). Synchronises the stream.
  virtual absl::StatusOr<std::vector<int64_t>> CountPairs(const KernelMap& map,
                                                          const ExecutionContext& context) = 0;
  // Opens branches of the context's stream; one set of them at a time. By default all of them run
  // in that stream.
  virtual absl::StatusOr<std::unique_ptr<Branches>> OpenBranches(const ExecutionContext& context);
  // Calls `work` once; what it queues on the context's stream is not run but recorded, with the
  // addresses that it was queued with. What work allocates and frees is the recording's own; what
  // it still holds in the end, and all else that it reads and writes, must outlive the recording.
  // kFailedPrecondition for work in which the host waits for the device or copies from or to its
  // own memory; kUnimplemented, the default, where work is done at once.
  virtual absl::StatusOr<std::unique_ptr<Recording>> Record(const ExecutionContext& context,
                                                            const Work& work);
  // The rows of a coordinate set, [N], as four arrays b | x | y | z of int32 voxel coordinates, one
  // after the other: [4, N] in the backend's memory (Luo & Lai, Section III-A). Queued on the
  // context's stream, which it does not wait for. O(N). kResourceExhausted without memory.
  virtual absl::StatusOr<Array<int32_t>> SplitCoordinates(const Array<Coordinate>& rows,
                                                          const ExecutionContext& context) = 0;
  // The dense operators of network layers.
  virtual TensorOps& tensor_ops() = 0;
  // How often the host has been made to wait for the device since the backend was made: by
  // Synchronize of any stream, for stage times, for memory that was short or page-locked anew, for
  // a recording. Not what a driver waits for by itself, as it may in copies of pageable memory. 0,
  // the default, where work is done at once.
  virtual int64_t synchronisations() const { return 0; }
};

// What every operation is handed: where to run and where to record. Cheap to copy.
struct ExecutionContext {
  Backend* backend = nullptr;
  Stream* stream = nullptr;
  Profile* profile = nullptr;  // null: nothing is recorded

  Counters* counters() const { return profile == nullptr ? nullptr : &profile->counters; }
};

// Times one visit of a stage for as long as it lives.
class StageScope {
 public:
  StageScope(const ExecutionContext& context, Stage stage) : context_(context), stage_(stage) {
    if (context_.profile != nullptr) {
      token_ = context_.backend->BeginStage(stage_, *context_.stream);
    }
  }
  ~StageScope() {
    if (context_.profile != nullptr) {
      context_.backend->EndStage(token_, stage_, *context_.stream, context_.profile);
    }
  }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  ExecutionContext context_;
  Stage stage_;
  int64_t token_ = 0;
};

// Uninitialised array of `size` elements; refuses negative and overflowing sizes.
template <typename T>
absl::StatusOr<Array<T>> AllocateArray(int64_t size, const ExecutionContext& context) {
  if (size < 0 || size > INT64_MAX / static_cast<int64_t>(sizeof(T))) {
    return absl::InvalidArgumentError("array size is negative or past 2^63 bytes");
  }
  VOXCONV_ASSIGN_OR_RETURN(
      Buffer buffer,
      context.backend->Allocate(size * static_cast<int64_t>(sizeof(T)), *context.stream));
  return Array<T>(std::move(buffer), size);
}

template <typename T>
absl::StatusOr<Array<T>> CopyToBackend(absl::Span<const T> host, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<T> array, AllocateArray<T>(host.size(), context));
  VOXCONV_RETURN_IF_ERROR(context.backend->Copy(array.data(), array.space(), host.data(),
                                                MemorySpace::kHost, array.bytes(),
                                                *context.stream));
  return array;
}

// Synchronises the stream.
template <typename T>
absl::StatusOr<std::vector<T>> CopyToHost(const Array<T>& array, const ExecutionContext& context) {
  std::vector<T> host(array.size());
  VOXCONV_RETURN_IF_ERROR(context.backend->Copy(host.data(), MemorySpace::kHost, array.data(),
                                                array.space(), array.bytes(), *context.stream));
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  return host;
}

}  // namespace voxconv

#endif  // VOXCONV_CORE_BACKEND_H_
