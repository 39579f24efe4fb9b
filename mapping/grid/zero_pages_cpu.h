// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_MAPPING_GRID_ZERO_PAGES_CPU_H_
#define VOXCONV_MAPPING_GRID_ZERO_PAGES_CPU_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace voxconv {

// Zeroed memory straight from the operating system. A grid has a thousand times more cells than
// voxels: 10^9 cells for one LiDAR frame at 0.05 m. Writing every cell once would take seconds and
// gigabytes. Pages of an anonymous mapping read as zero, and take memory only once they are
// written. A build thus costs only the pages that voxels lie in. The backend's pool cannot serve
// this, because its blocks hold what their last user left. The grid's own option limits the
// pages that voxels lie in instead (WrittenBytes).
class ZeroPages {
 public:
  // Reserves `bytes` >= 0. kResourceExhausted if the operating system refuses the address space.
  static absl::StatusOr<ZeroPages> Reserve(int64_t bytes);

  ZeroPages() = default;
  ZeroPages(ZeroPages&& other) noexcept { *this = std::move(other); }
  ZeroPages& operator=(ZeroPages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ZeroPages();

  template <typename T>
  T* As() const {
    return static_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_GRID_ZERO_PAGES_CPU_H_
