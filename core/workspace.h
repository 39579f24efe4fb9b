// SPDX-License-Identifier: Apache-2.0
// Scratch memory of a dataflow. A plan books it, and it is granted before a run.
#ifndef VOXCONV_CORE_WORKSPACE_H_
#define VOXCONV_CORE_WORKSPACE_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "voxconv/core/backend.h"

namespace voxconv {

// The pieces of memory that a plan needs. They do not overlap.
class WorkspaceBooking {
 public:
  // Books `bytes` >= 0 bytes at a multiple of 256 bytes. Returns the slot by which Workspace::Get
  // finds them. A total past 2^63 bytes is booked as 2^63 - 1 bytes, for which Workspace::Grant
  // fails.
  int Book(int64_t bytes) {
    constexpr int64_t kAlignment = 256;
    offsets_.push_back(total_);
    total_ = bytes > INT64_MAX - total_ - kAlignment
                 ? INT64_MAX
                 : total_ + (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return static_cast<int>(offsets_.size()) - 1;
  }
  // Books `count` elements of T.
  template <typename T>
  int Book(int64_t count) {
    constexpr int64_t kSize = sizeof(T);
    return Book(count > INT64_MAX / kSize ? INT64_MAX : count * kSize);
  }
  int64_t total_bytes() const { return total_; }
  // By slot: bytes from the start of the workspace.
  const std::vector<int64_t>& offsets() const { return offsets_; }

 private:
  std::vector<int64_t> offsets_;
  int64_t total_ = 0;
};

// One block of backend memory that all layers of a stream use in turn. It grows and never shrinks.
// Must not outlive the backend. Not thread-safe.
class Workspace {
 public:
  // Makes room for `booking`. The contents are undefined afterwards, and pointers from an earlier
  // grant are invalid. Work that was queued before on the same stream may still use the old memory.
  // Does not synchronise, unless memory is short. kResourceExhausted if the memory does not
  // suffice; the workspace is then empty.
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

  // The memory of a slot of the booking that was granted last (checked). Owned by the workspace.
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
