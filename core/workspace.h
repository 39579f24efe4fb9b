// Scratch memory of a dataflow: booked when planning, granted when running.
#ifndef VOXCONV_CORE_WORKSPACE_H_
#define VOXCONV_CORE_WORKSPACE_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/backend.h"

namespace voxconv {

// Collects the sizes that a plan will need. Slots never overlap.
class WorkspaceBooking {
 public:
  // Returns the slot under which Workspace::Get finds the memory. Alignment is 256 bytes.
  // Sizes past 2^63 bytes are booked as that, which Workspace::Grant then refuses.
  int Book(int64_t bytes) {
    constexpr int64_t kAlignment = 256;
    offsets_.push_back(total_);
    total_ = bytes > INT64_MAX - total_ - kAlignment
                 ? INT64_MAX
                 : total_ + (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return static_cast<int>(offsets_.size()) - 1;
  }
  template <typename T>
  int Book(int64_t count) {
    constexpr int64_t kSize = sizeof(T);
    return Book(count > INT64_MAX / kSize ? INT64_MAX : count * kSize);
  }
  int64_t total_bytes() const { return total_; }
  const std::vector<int64_t>& offsets() const { return offsets_; }

 private:
  std::vector<int64_t> offsets_;
  int64_t total_ = 0;
};

// One growing block of backend memory, reused from layer to layer. Contents are undefined at each
// Grant. Not thread-safe; one per stream.
class Workspace {
 public:
  // Makes room for `booking`. Pointers from an earlier grant become invalid.
  absl::Status Grant(const WorkspaceBooking& booking, const ExecutionContext& context) {
    if (booking.total_bytes() > buffer_.bytes()) {
      buffer_ = Buffer();
      VOXCONV_ASSIGN_OR_RETURN(buffer_,
                               context.backend->Allocate(booking.total_bytes(), *context.stream));
    }
    offsets_ = booking.offsets();
    if (Counters* counters = context.counters()) {
      counters->peak_workspace = std::max(counters->peak_workspace, booking.total_bytes());
    }
    return absl::OkStatus();
  }

  template <typename T>
  T* Get(int slot) const {
    VOXCONV_CHECK(slot >= 0 && slot < static_cast<int>(offsets_.size()));
    return reinterpret_cast<T*>(static_cast<char*>(buffer_.data()) + offsets_[slot]);
  }

 private:
  Buffer buffer_;
  std::vector<int64_t> offsets_;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_WORKSPACE_H_
