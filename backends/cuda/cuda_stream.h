// SPDX-License-Identifier: Apache-2.0
// The streams of the CUDA backend, and the memory that is freed on them.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_STREAM_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_STREAM_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "voxconv/backends/cuda/block_cache.h"
#include "voxconv/backends/cuda/cuda_backend.h"
#include "voxconv/backends/cuda/cuda_check.h"
#include "voxconv/backends/cuda/cuda_recording.h"
#include "voxconv/backends/cuda/launch_batch.h"

namespace voxconv {

// One stream. It frees the buffers that were allocated on it, in the order of its work.
class CudaBackend::CudaStream final : public Stream, public Buffer::Deleter {
 public:
  // Uses `adopted`, which somebody else owns. Null: makes a stream, and owns it.
  explicit CudaStream(CudaBackend& backend, cudaStream_t adopted = nullptr)
      : backend_(backend), stream_(adopted), owned_(adopted == nullptr) {}
  // Waits for the stream's work.
  ~CudaStream() override {
    if (stream_ == nullptr) return;
    SubmitForLater();
    ReleaseCached();
    std::erase(backend_.streams_, this);
    if (ticket_ != nullptr) cudaFreeAsync(ticket_, stream_);
    cudaStreamSynchronize(stream_);
    if (order_ != nullptr) cudaEventDestroy(order_);
    if (owned_) cudaStreamDestroy(stream_);
  }

  absl::Status Initialise() {
    backend_.MakeCurrent();
    if (owned_) {
      VOXCONV_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    }
    VOXCONV_RETURN_IF_CUDA_ERROR(cudaEventCreateWithFlags(&order_, cudaEventDisableTiming));
    VOXCONV_RETURN_IF_CUDA_ERROR(
        cudaMallocFromPoolAsync(&ticket_, sizeof(CudaTicket), backend_.pool_, stream_));
    VOXCONV_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(ticket_, 0, sizeof(CudaTicket), stream_));
    backend_.streams_.push_back(this);
    return absl::OkStatus();
  }
  absl::Status Synchronize() override {
    if (backend_.recording_ != nullptr) {
      return absl::FailedPreconditionError("work that is recorded must not wait for the device");
    }
    VOXCONV_RETURN_IF_ERROR(Submit());
    ++backend_.synchronisations_;
    VOXCONV_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_));
    return absl::OkStatus();
  }
  bool IsIdle() override {
    return lost_.ok() && !batch_.open() && cudaStreamQuery(stream_) == cudaSuccess;
  }
  absl::Status Collect() override {
    if (!lost_.ok()) return std::exchange(lost_, absl::OkStatus());
    const bool allowed = backend_.options_.collect_launches && backend_.options_.reuse_blocks &&
                         backend_.recording_ == nullptr && stream_ != cudaStreamLegacy;
    return allowed && !batch_.open() ? batch_.Begin(stream_) : absl::OkStatus();
  }
  absl::Status Submit() override {
    SubmitForLater();
    return std::exchange(lost_, absl::OkStatus());
  }
  // Submit for callers that cannot return an error. The next Submit, Collect or Synchronize returns
  // it.
  void SubmitForLater() { lost_.Update(batch_.End()); }
  // Frees the graphs of earlier batches. They are made again when they are needed.
  void ReleaseGraphs() { batch_.Clear(); }
  // Whether launches are kept back now.
  bool collecting() const { return batch_.open(); }
  // See CudaBackend::NoteLaunch.
  void Note(const void* what) { batch_.Note(what); }
  void* native_handle() override { return stream_; }
  cudaStream_t get() const { return stream_; }
  CudaTicket* ticket() { return static_cast<CudaTicket*>(ticket_); }

  void Free(void* data, int64_t bytes) override {
    if (backend_.recording_ != nullptr) {
      backend_.recording_->Free(data, bytes, *this);
      return;
    }
    backend_.in_use_ -= bytes;
    if (!backend_.options_.reuse_blocks) {
      FollowMainStream();
      cudaFreeAsync(data, stream_);
      return;
    }
    const int64_t size = BlockCache::BlockSize(bytes);
    if (holding_) {
      held_.emplace_back(data, size);
    } else {
      cache_.Put(data, size);
    }
    backend_.cached_ += size;
    // When the sizes of frames drift, blocks are left that no later frame asks for. They go back to
    // the pool only when they are more than an eighth of the device's memory, because all streams
    // wait for the main stream then.
    const auto kept = static_cast<int64_t>(backend_.properties_.totalGlobalMem / 8);
    if (backend_.cached_ > std::max(kept, backend_.peak_)) backend_.ReleaseCached();
  }

  // A freed block of the class of `bytes`, null if there is none.
  void* TakeCached(int64_t bytes) {
    if (!backend_.options_.reuse_blocks) return nullptr;
    const int64_t size = BlockCache::BlockSize(bytes);
    void* block = cache_.Take(size);
    if (block != nullptr) backend_.cached_ -= size;
    return block;
  }
  // Gives the freed blocks back to the pool, which can cut and join them.
  void ReleaseCached() {
    SubmitForLater();
    FollowMainStream();
    UseHeld();
    cache_.Clear([this](void* block, int64_t size) {
      cudaFreeAsync(block, stream_);
      backend_.cached_ -= size;
    });
  }

  // While a stream holds, blocks that are freed on it may still be read by another stream. They are
  // not used again before UseHeld. The caller of UseHeld makes this stream wait for the other one
  // before it allocates.
  void Hold(bool holding) { holding_ = holding; }
  void UseHeld() {
    for (const auto& [block, size] : held_) cache_.Put(block, size);
    held_.clear();
  }

 private:
  // The main stream may read memory that was allocated on a side stream or a lane, also later than
  // this stream has come. So this stream waits for the main stream before the memory goes back to
  // the pool. Errors of these calls are errors of earlier work, which the next Synchronize returns.
  void FollowMainStream() {
    CudaStream* main = backend_.stream_.get();
    if (main == nullptr || main == this || order_ == nullptr) return;
    main->SubmitForLater();
    cudaEventRecord(order_, main->stream_);
    cudaStreamWaitEvent(stream_, order_, 0);
  }

  CudaBackend& backend_;
  cudaStream_t stream_;
  bool owned_;  // this object made stream_, and destroys it
  cudaEvent_t order_ = nullptr;
  void* ticket_ = nullptr;
  LaunchBatch batch_;
  absl::Status lost_;  // the error of SubmitForLater that has not been returned yet
  BlockCache cache_;
  bool holding_ = false;
  std::vector<std::pair<void*, int64_t>> held_;
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_STREAM_H_
