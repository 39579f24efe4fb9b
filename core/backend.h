// Where memory lives and where work is queued. Code above a backend never assumes host memory.
#ifndef VOXCONV_CORE_BACKEND_H_
#define VOXCONV_CORE_BACKEND_H_

#include <cstdint>
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
#include "core/stream.h"
#include "core/types.h"

namespace voxconv {

class MapOps;
class TensorOps;

// Memory and streams of one device, and its operators. One thread at a time drives a backend.
// Buffers and streams must not outlive it.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual BackendKind kind() const = 0;
  // The device in words, for result files.
  virtual std::string DeviceName() const = 0;
  // Where the backend's memory lies.
  virtual Device device() const = 0;
  // Whether work may still run after the call that queued it has returned. If not, work is done at
  // once and streams have nothing to wait for.
  virtual bool asynchronous() const = 0;

  // The stream for callers that make none of their own. Owned by the backend.
  virtual Stream& main_stream() = 0;
  // Opens branches of the context's stream. Only one set of branches may be open. By default all
  // lanes run in that stream.
  virtual absl::StatusOr<std::unique_ptr<Branches>> OpenBranches(const ExecutionContext& context);

  // Uninitialised memory, which work may use that is queued on `stream` from now on.
  // kResourceExhausted names the bytes that were asked for and those that are left.
  virtual absl::StatusOr<Buffer> Allocate(int64_t bytes, Stream& stream) = 0;
  // Queues a copy. Each side may be host memory or this backend's. A copy to host memory is
  // complete after Synchronize.
  virtual absl::Status Copy(void* to, MemorySpace to_space, const void* from,
                            MemorySpace from_space, int64_t bytes, Stream& stream) = 0;
  virtual absl::Status FillBytes(void* data, uint8_t value, int64_t bytes, Stream& stream) = 0;

  // Stage timing, for StageScope alone. EndStage takes the token that BeginStage returned, and adds
  // the time to `profile`, at the latest in FlushStages. `resumes`: the stage was interrupted and
  // goes on; its visit is counted already.
  virtual int64_t BeginStage(Stage stage, Stream& stream) = 0;
  virtual void EndStage(int64_t token, Stage stage, bool resumes, Stream& stream,
                        Profile* profile) = 0;
  // Adds all times that were recorded to their profiles. May synchronise.
  virtual absl::Status FlushStages() = 0;

  // Kernel maps between their two forms (core/map_ops.h).
  virtual MapOps& map_ops() = 0;
  // The dense operators of layers (core/tensor_ops.h).
  virtual TensorOps& tensor_ops() = 0;
  // Null where work cannot be recorded.
  virtual Recorder* recorder() { return nullptr; }

  // How often the host has waited for the device since the backend was made. Counted are waits in
  // Synchronize of any stream, for stage times, for memory that was short or had to be page-locked,
  // and for a recording. Not counted are waits inside a driver's own calls, such as copies of
  // pageable memory. 0 where work is done at once.
  virtual int64_t synchronisations() const { return 0; }
};

// What every operation is given: where to run and where to record. Cheap to copy.
struct ExecutionContext {
  Backend* backend = nullptr;
  Stream* stream = nullptr;
  Profile* profile = nullptr;  // null: nothing is recorded

  Counters* counters() const { return profile == nullptr ? nullptr : &profile->counters; }
};

// Times a stage for as long as it lives. A scope that is opened inside another one interrupts it:
// each moment counts for the innermost stage alone.
class StageScope {
 public:
  StageScope(const ExecutionContext& context, Stage stage) : context_(context), stage_(stage) {
    if (context_.profile == nullptr) return;
    outer_ = std::exchange(context_.profile->open_stage, this);
    if (outer_ != nullptr) outer_->End();
    Begin();
  }
  ~StageScope() {
    if (context_.profile == nullptr) return;
    End();
    context_.profile->open_stage = outer_;
    if (outer_ != nullptr) outer_->Begin();
  }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  void Begin() { token_ = context_.backend->BeginStage(stage_, *context_.stream); }
  void End() {
    context_.backend->EndStage(token_, stage_, resumes_, *context_.stream, context_.profile);
    resumes_ = true;
  }

  ExecutionContext context_;
  Stage stage_;
  StageScope* outer_ = nullptr;
  int64_t token_ = 0;
  bool resumes_ = false;
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
