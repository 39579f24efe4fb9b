// The streams of the CUDA backend and the memory that is freed on them.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_STREAM_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_STREAM_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "backends/cuda/block_cache.h"
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_recording.h"
#include "backends/cuda/launch_batch.h"

namespace voxconv {

// Owns the memory allocated on it in the sense that freeing is queued there.
class CudaBackend::CudaStream final : public Stream, public Buffer::Deleter {
 public:
  explicit CudaStream(CudaBackend& backend) : backend_(backend) {}
  ~CudaStream() override {
    if (stream_ == nullptr) return;
    SubmitForLater();
    ReleaseCached();
    std::erase(backend_.streams_, this);
    if (ticket_ != nullptr) cudaFreeAsync(ticket_, stream_);
    cudaStreamSynchronize(stream_);
    if (order_ != nullptr) cudaEventDestroy(order_);
    cudaStreamDestroy(stream_);
  }

  absl::Status Initialise() {
    backend_.MakeCurrent();
    VOXCONV_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
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
  absl::Status Collect() override {
    if (!lost_.ok()) return std::exchange(lost_, absl::OkStatus());
    const bool allowed = backend_.options_.collect_launches && backend_.options_.reuse_blocks &&
                         backend_.recording_ == nullptr;
    return allowed && !batch_.open() ? batch_.Begin(stream_) : absl::OkStatus();
  }
  absl::Status Submit() override {
    SubmitForLater();
    return std::exchange(lost_, absl::OkStatus());
  }
  // For those who cannot return an error: the next Submit, Collect or Synchronize does.
  void SubmitForLater() { lost_.Update(batch_.End()); }
  // Frees what serves to launch together; it is made again when it is needed.
  void ReleaseGraphs() { batch_.Clear(); }
  bool collecting() const { return batch_.open(); }
  // `what` is queued next: its address, or any other that stands for it.
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
    // Frames whose sizes drift leave blocks behind that nobody asks for again. Giving them back
    // makes all streams wait for the main one, so not before they are more than an eighth of the
    // device.
    const auto kept = static_cast<int64_t>(backend_.properties_.totalGlobalMem / 8);
    if (backend_.cached_ > std::max(kept, backend_.peak_)) backend_.ReleaseCached();
  }

  // Null where no freed block fits.
  void* TakeCached(int64_t bytes) {
    if (!backend_.options_.reuse_blocks) return nullptr;
    const int64_t size = BlockCache::BlockSize(bytes);
    void* block = cache_.Take(size);
    if (block != nullptr) backend_.cached_ -= size;
    return block;
  }
  // Back to the pool, which can cut and join them.
  void ReleaseCached() {
    SubmitForLater();
    FollowMainStream();
    UseHeld();
    cache_.Clear([this](void* block, int64_t size) {
      cudaFreeAsync(block, stream_);
      backend_.cached_ -= size;
    });
  }

  // While a stream holds, what is freed on it may still be read on another stream, and serves here
  // again only after UseHeld: by then this stream must be made to wait for that one.
  void Hold(bool holding) { holding_ = holding; }
  void UseHeld() {
    for (const auto& [block, size] : held_) cache_.Put(block, size);
    held_.clear();
  }

 private:
  // What was allocated on a side stream or a lane is read on the main stream, perhaps only later:
  // before it goes back to the pool, this stream has to come to that point. Errors here are those
  // of earlier work and come back from the next Synchronize.
  void FollowMainStream() {
    CudaStream* main = backend_.stream_.get();
    if (main == nullptr || main == this || order_ == nullptr) return;
    main->SubmitForLater();
    cudaEventRecord(order_, main->stream_);
    cudaStreamWaitEvent(stream_, order_, 0);
  }

  CudaBackend& backend_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t order_ = nullptr;
  void* ticket_ = nullptr;
  LaunchBatch batch_;
  absl::Status lost_;  // the error of a SubmitForLater
  BlockCache cache_;
  bool holding_ = false;
  std::vector<std::pair<void*, int64_t>> held_;
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_STREAM_H_
