// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/host_memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "voxconv/backends/cuda/cuda_check.h"
#include "voxconv/core/check.h"

namespace voxconv {

HostMemory::~HostMemory() {
  for (const Block& block : blocks_) cudaFreeHost(block.data);
}

absl::StatusOr<Buffer> HostMemory::Allocate(int64_t bytes, int64_t& synchronisations) {
  for (Block& block : blocks_) {
    if (block.lent || block.bytes < bytes) continue;
    block.lent = true;
    return Buffer(block.data, bytes, MemorySpace::kHost, this);
  }
  if (!blocks_.empty()) ++synchronisations;
  // A free block that is too small makes room for a larger one.
  const auto small =
      std::find_if(blocks_.begin(), blocks_.end(), [](const Block& block) { return !block.lent; });
  if (small != blocks_.end()) {
    cudaFreeHost(small->data);
    blocks_.erase(small);
  }
  void* data = nullptr;
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaMallocHost(&data, bytes));
  blocks_.push_back({data, bytes, /*lent=*/true});
  return Buffer(data, bytes, MemorySpace::kHost, this);
}

void HostMemory::Free(void* data, int64_t) {
  const auto block = std::find_if(blocks_.begin(), blocks_.end(),
                                  [&](const Block& lent) { return lent.data == data; });
  VOXCONV_CHECK(block != blocks_.end());
  block->lent = false;
}

}  // namespace voxconv
