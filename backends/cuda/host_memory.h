// Page-locked host memory.
#ifndef VOXCONV_BACKENDS_CUDA_HOST_MEMORY_H_
#define VOXCONV_BACKENDS_CUDA_HOST_MEMORY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/buffer.h"

namespace voxconv {

// Blocks that are locked once and lent again and again: locking takes long, and may wait for the
// device. Buffers must not outlive it.
class HostMemory final : public Buffer::Deleter {
 public:
  ~HostMemory() override;
  // See CudaBackend::HostBuffer. Adds 1 to `synchronisations` where blocks that are there do not
  // suffice, except for the first block.
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
