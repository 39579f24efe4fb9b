#ifndef VOXCONV_MAPPING_GRID_ZERO_PAGES_CPU_H_
#define VOXCONV_MAPPING_GRID_ZERO_PAGES_CPU_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace voxconv {

// Zeroed memory straight from the operating system. A grid has a thousand times more cells than
// voxels (10^9 of them for one LiDAR frame at 0.05 m): writing each, even once, would take seconds
// and gigabytes. Pages of an anonymous mapping read as zero and take up memory only once written,
// so a build costs the pages that voxels lie in. Hence not from the backend's pool, whose blocks
// hold what their last user left; a grid's size is bounded by its own option instead.
class ZeroPages {
 public:
  // `bytes` >= 0. kResourceExhausted where the address space is refused.
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
