// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "voxconv/backends/cuda/cuda_backend.h"
#include "voxconv/backends/cuda/cuda_check.h"
#include "voxconv/backends/cuda/cuda_stream.h"

namespace voxconv {
namespace {

constexpr int kMaxLanes = 8;

// Lane 0 shares its stream with no other lane. Work of lane 0 may run layers of the trunk, which
// free memory of other lanes. The streams of those lanes must hold that memory meanwhile.
constexpr int StreamOfLane(int lane) { return lane == 0 ? 0 : 1 + (lane - 1) % (kMaxLanes - 1); }

}  // namespace

// Lanes are streams that the backend keeps. The main stream reads memory of lanes too. A block that
// is freed outside of its lane's own work may therefore still be read by the main stream, and later
// work of the lane may not be ordered after that. So lanes hold such blocks until the next branches
// are opened.
class CudaBackend::CudaBranches final : public Branches {
 public:
  CudaBranches(CudaBackend& backend, const ExecutionContext& trunk)
      : backend_(backend), trunk_(trunk) {
    VOXCONV_CHECK(trunk.stream == backend.stream_.get() && !backend.branches_open_);
    backend_.branches_open_ = true;
  }
  ~CudaBranches() override {
    Join().IgnoreError();
    // A wait refers to the last record before it, so the events can be used again.
    for (const Piece& piece : pieces_) backend_.free_order_events_.push_back(piece.end);
    if (fork_ != nullptr) backend_.free_order_events_.push_back(fork_);
    backend_.branches_open_ = false;
  }

  absl::Status Open() {
    VOXCONV_RETURN_IF_ERROR(backend_.stream_->Submit());
    VOXCONV_ASSIGN_OR_RETURN(fork_, backend_.TakeOrderEvent());
    VOXCONV_RETURN_IF_CUDA_ERROR(cudaEventRecord(fork_, CudaStreamOf(trunk_)));
    behind_.fill(true);
    // Each lane waits for the fork before it allocates.
    for (const auto& lane : backend_.lanes_) lane->UseHeld();
    return absl::OkStatus();
  }

  absl::StatusOr<int> Run(int lane, const Work& work) override {
    VOXCONV_CHECK(lane >= 0);
    lane = StreamOfLane(lane);
    // Where work of a lane calls Run: what it has queued so far need not wait for this piece.
    if (collecting_ != nullptr) VOXCONV_RETURN_IF_ERROR(collecting_->Submit());
    VOXCONV_ASSIGN_OR_RETURN(CudaStream* const stream, backend_.LaneStream(lane));
    if (behind_[lane]) {
      VOXCONV_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(stream->get(), fork_));
      behind_[lane] = false;
    }
    for (size_t& next = next_followed_[lane]; next < followed_.size(); ++next) {
      VOXCONV_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(stream->get(), followed_[next]));
    }
    VOXCONV_ASSIGN_OR_RETURN(const cudaEvent_t end, backend_.TakeOrderEvent());
    const size_t number = pieces_.size();
    pieces_.push_back({end, lane, false});
    ExecutionContext branch = trunk_;
    branch.stream = stream;
    CudaStream* const outer = std::exchange(collecting_, stream);
    stream->Hold(false);
    absl::Status status = stream->Collect();
    if (status.ok()) status = work(branch);
    status.Update(stream->Submit());
    stream->Hold(true);
    collecting_ = outer;
    // Also if the work failed, since a part of it may be queued.
    VOXCONV_RETURN_IF_CUDA_ERROR(cudaEventRecord(end, stream->get()));
    pieces_[number].joined = false;  // the work may have called Join before its end
    VOXCONV_RETURN_IF_ERROR(status);
    return static_cast<int>(number);
  }

  absl::Status Follow(int number) override {
    VOXCONV_CHECK(number >= 0 && number < static_cast<int>(pieces_.size()));
    followed_.push_back(pieces_[number].end);
    return absl::OkStatus();
  }

  absl::Status Wait(int number) override {
    VOXCONV_CHECK(number >= 0 && number < static_cast<int>(pieces_.size()));
    if (pieces_[number].joined) return absl::OkStatus();
    const bool collecting = backend_.stream_->collecting();
    VOXCONV_RETURN_IF_ERROR(backend_.stream_->Submit());
    VOXCONV_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(CudaStreamOf(trunk_), pieces_[number].end));
    if (collecting) VOXCONV_RETURN_IF_ERROR(backend_.stream_->Collect());
    // The trunk has then also waited for all earlier pieces of the lane.
    for (int i = 0; i <= number; ++i) {
      if (pieces_[i].lane == pieces_[number].lane) pieces_[i].joined = true;
    }
    return absl::OkStatus();
  }

  absl::Status Join() override {
    absl::Status status;
    for (int i = static_cast<int>(pieces_.size()) - 1; i >= 0; --i) status.Update(Wait(i));
    return status;
  }

 private:
  struct Piece {
    cudaEvent_t end;
    int lane;
    bool joined;  // the trunk has waited for it
  };

  CudaBackend& backend_;
  ExecutionContext trunk_;
  cudaEvent_t fork_ = nullptr;
  CudaStream* collecting_ = nullptr;      // the stream of the work that is being queued
  std::array<bool, kMaxLanes> behind_{};  // the lane has not waited for the fork yet
  std::vector<cudaEvent_t> followed_;     // ends of the pieces given to Follow
  // By lane: the first entry of followed_ that the lane has not waited for yet.
  std::array<size_t, kMaxLanes> next_followed_{};
  std::vector<Piece> pieces_;
};

absl::StatusOr<CudaBackend::CudaStream*> CudaBackend::LaneStream(int index) {
  while (static_cast<int>(lanes_.size()) <= index) {
    auto stream = std::make_unique<CudaStream>(*this);
    VOXCONV_RETURN_IF_ERROR(stream->Initialise());
    stream->Hold(true);
    lanes_.push_back(std::move(stream));
  }
  return lanes_[index].get();
}

absl::StatusOr<std::unique_ptr<Branches>> CudaBackend::OpenBranches(
    const ExecutionContext& context) {
  auto branches = std::make_unique<CudaBranches>(*this, context);
  VOXCONV_RETURN_IF_ERROR(branches->Open());
  return branches;
}

}  // namespace voxconv
