// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/grid/zero_pages_cpu.h"

#include <sys/mman.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace voxconv {

absl::StatusOr<ZeroPages> ZeroPages::Reserve(int64_t bytes) {
  ZeroPages pages;
  if (bytes == 0) return pages;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("grid: the operating system refused ", bytes, " bytes of address space"));
  }
  // Huge pages would be zeroed two megabytes at a time, for a few voxels each.
  madvise(data, bytes, MADV_NOHUGEPAGE);
  pages.data_ = data;
  pages.bytes_ = bytes;
  return pages;
}

ZeroPages::~ZeroPages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace voxconv
