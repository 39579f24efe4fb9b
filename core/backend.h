// SPDX-License-Identifier: Apache-2.0
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
#include "voxconv/core/buffer.h"
#include "voxconv/core/profile.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/core/stream.h"
#include "voxconv/core/types.h"

namespace voxconv {

class MapOps;
class TensorOps;
class TrainingOps;
class VoxelOps;

// Memory and streams of one device, and its operators. One thread at a time drives a backend.
// Buffers and streams must not outlive their backend. "Queued" work is done when the call returns
// on a backend that is not asynchronous. On an asynchronous backend it may still be running, and an
// error of it comes from a later call, at the latest from Stream::Synchronize.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual BackendKind kind() const = 0;
  // Describes the device in one line, for people and result files.
  virtual std::string DeviceName() const = 0;
  // Where the backend's memory lies. Tensors of operators and dataflows must lie there.
  virtual Device device() const = 0;
  // Whether work may still run after the call that queued it has returned. If not, work is done at
  // once and streams have nothing to wait for.
  virtual bool asynchronous() const = 0;

  // The stream for callers that make none of their own. Owned by the backend.
  virtual Stream& main_stream() = 0;
  // Opens branches of the context's stream (core/stream.h). Only one set of branches may be open at
  // a time. Does not synchronise. The default runs all lanes in that stream.
  virtual absl::StatusOr<std::unique_ptr<Branches>> OpenBranches(const ExecutionContext& context);

  // Returns uninitialised memory of the backend. Work that is queued on `stream` from now on may
  // use it. Does not synchronise, unless memory is short. 0 bytes give an empty buffer.
  // kInvalidArgument for negative `bytes`. kResourceExhausted if the memory does not suffice; the
  // message gives the bytes that were asked for.
  virtual absl::StatusOr<Buffer> Allocate(int64_t bytes, Stream& stream) = 0;
  // Queues a copy of `bytes` bytes. Each side is host memory or this backend's memory; the spaces
  // say which. The two ranges must not overlap. A copy to host memory is complete after
  // Stream::Synchronize. A copy from host memory has read `from` when this returns, unless `from`
  // is page-locked; page-locked memory must stay as it is until the copy is complete.
  virtual absl::Status Copy(void* to, MemorySpace to_space, const void* from,
                            MemorySpace from_space, int64_t bytes, Stream& stream) = 0;
  // Queues a fill: each of the `bytes` bytes at `data`, in this backend's memory, becomes `value`.
  virtual absl::Status FillBytes(void* data, uint8_t value, int64_t bytes, Stream& stream) = 0;

  // Stage timing, for StageScope alone. EndStage takes the token that BeginStage returned. It adds
  // the time between the two to `profile`, at the latest when FlushStages is called; `profile` must
  // live until then. `resumes`: the stage was interrupted before and goes on, so that its visit is
  // counted already. Neither call synchronises.
  virtual int64_t BeginStage(Stage stage, Stream& stream) = 0;
  virtual void EndStage(int64_t token, Stage stage, bool resumes, Stream& stream,
                        Profile* profile) = 0;
  // Adds all times that were recorded to their profiles. Waits for the recorded stages to end.
  // Returns the first error of timing them.
  virtual absl::Status FlushStages() = 0;

  // Turns kernel maps from one form into the other (core/map_ops.h). Owned by the backend.
  virtual MapOps& map_ops() = 0;
  // The dense operators of layers (core/tensor_ops.h). Owned by the backend.
  virtual TensorOps& tensor_ops() = 0;
  // The operators of training (core/training_ops.h). Owned by the backend. Null where the backend
  // cannot train.
  virtual TrainingOps* training_ops() { return nullptr; }
  // Owned by the backend. Null where work cannot be recorded.
  virtual Recorder* recorder() { return nullptr; }

  // How often the host has waited for the device since the backend was made. This counts waits in
  // Synchronize of any stream, waits for stage times, waits for memory that was short or had to be
  // page-locked, and waits for a recording. It does not count waits inside a driver's own calls,
  // such as copies of pageable memory. 0 on a backend that is not asynchronous.
  virtual int64_t synchronisations() const { return 0; }

  // The most bytes that live buffers have had at once. 0 where the backend does not count them.
  virtual int64_t PeakBytes() const { return 0; }

  // Points to voxels and back (core/voxel_ops.h). Owned by the backend. Null where the backend does
  // not do this.
  virtual VoxelOps* voxel_ops() { return nullptr; }
};

// What every operation is given: where it runs and where it records times and counters. Owns
// nothing. Cheap to copy.
struct ExecutionContext {
  Backend* backend = nullptr;
  Stream* stream = nullptr;
  Profile* profile = nullptr;  // null: nothing is recorded

  Counters* counters() const { return profile == nullptr ? nullptr : &profile->counters; }
};

// Times a stage from its construction to its destruction. Does nothing without a profile. A scope
// that is opened inside another scope interrupts that one, so that each moment counts for the
// innermost stage alone. Scopes of one profile must end in the reverse order of their beginnings.
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

// An uninitialised array of `size` elements in the backend's memory. Stream behaviour and errors
// are those of Backend::Allocate. kInvalidArgument for a negative size or one past 2^63 bytes.
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

// Copies `host` into a new array in the backend's memory. `host` is pageable memory, and may be
// gone when this returns. Queued on the context's stream. Errors of AllocateArray.
template <typename T>
absl::StatusOr<Array<T>> CopyToBackend(absl::Span<const T> host, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<T> array, AllocateArray<T>(host.size(), context));
  VOXCONV_RETURN_IF_ERROR(context.backend->Copy(array.data(), array.space(), host.data(),
                                                MemorySpace::kHost, array.bytes(),
                                                *context.stream));
  return array;
}

// Copies `array` to the host. Synchronises the stream.
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
