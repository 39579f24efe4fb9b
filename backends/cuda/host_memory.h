// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory.
#ifndef VOXCONV_BACKENDS_CUDA_HOST_MEMORY_H_
#define VOXCONV_BACKENDS_CUDA_HOST_MEMORY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/core/buffer.h"

namespace voxconv {

// Page-locked host memory. Locking takes long and may wait for the device, so blocks are locked
// once and kept for reuse. Buffers must not outlive this object.
class HostMemory final : public Buffer::Deleter {
 public:
  ~HostMemory() override;
  // See CudaBackend::HostBuffer. Adds 1 to `synchronisations` if it must lock a block, except for
  // the first one.
  absl::StatusOr<Buffer> Allocate(int64_t bytes, int64_t& synchronisations);
  void Free(void* data, int64_t bytes) override;

 private:
  struct Block {
    void* data;
    int64_t bytes;
    bool lent;
  };
  std::vector<Block> blocks_;
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_HOST_MEMORY_H_
