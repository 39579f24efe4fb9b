// Work recorded as a CUDA graph, and its memory.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_RECORDING_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_RECORDING_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "backends/cuda/block_cache.h"
#include "backends/cuda/cuda_backend.h"

namespace voxconv {

// A graph holds addresses: until it is gone, nobody else may be given a block that its work has
// used for a while. So while work is recorded its blocks come from here, fresh from the pool, and
// go from one use to the next as on a stream; they return to the pool with the recording.
class CudaBackend::CudaRecording final : public Recording {
 public:
  CudaRecording(CudaBackend& backend, const ExecutionContext& context)
      : backend_(backend), context_(context), stream_(CudaStreamOf(context)) {}
  ~CudaRecording() override;

  absl::Status Record(const Work& work);
  absl::Status Replay() override;

  // The backend's memory while work is recorded.
  cudaError_t TakeBlock(int64_t bytes, const CudaStream& owner, void*& data);
  void Free(void* data, int64_t bytes, CudaStream& owner);

 private:
  struct FreedBuffer {
    void* data;
    int64_t bytes;
    CudaStream* owner;
  };

  absl::Status Capture(const Work& work, cudaGraph_t& graph);

  CudaBackend& backend_;
  ExecutionContext context_;
  cudaStream_t stream_;
  cudaStream_t memory_stream_ = nullptr;  // takes no part in what is recorded
  cudaGraphExec_t executable_ = nullptr;
  absl::flat_hash_set<const void*> blocks_;                   // all that came from the pool
  absl::flat_hash_map<const CudaStream*, BlockCache> freed_;  // of these, by stream
  std::vector<FreedBuffer> others_;                           // freed by the work but not its own
  int64_t held_ = 0;                                          // bytes of `freed_`, once recorded
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_RECORDING_H_
