// SPDX-License-Identifier: Apache-2.0
// Work recorded as a CUDA graph, and its memory.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_RECORDING_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_RECORDING_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "voxconv/backends/cuda/block_cache.h"
#include "voxconv/backends/cuda/cuda_backend.h"

namespace voxconv {

// A graph holds addresses. A block that its work has used, if only for a while, must not be given
// to anybody else as long as the graph exists. So the recording hands out the blocks while work is
// recorded. It takes them from the pool, uses a freed block again for later work of the same
// stream, and returns all of them to the pool when it is destroyed.
class CudaBackend::CudaRecording final : public Recording {
 public:
  CudaRecording(CudaBackend& backend, const ExecutionContext& context)
      : backend_(backend), context_(context), stream_(CudaStreamOf(context)) {}
  ~CudaRecording() override;

  absl::Status Record(const Recorder::Work& work);
  absl::Status Replay() override;

  // The backend allocates and frees through these while work is recorded.
  cudaError_t TakeBlock(int64_t bytes, const CudaStream& owner, void*& data);
  void Free(void* data, int64_t bytes, CudaStream& owner);

 private:
  struct FreedBuffer {
    void* data;
    int64_t bytes;
    CudaStream* owner;
  };

  absl::Status Capture(const Recorder::Work& work, cudaGraph_t& graph);

  CudaBackend& backend_;
  ExecutionContext context_;
  cudaStream_t stream_;
  cudaStream_t memory_stream_ = nullptr;  // for the pool; nothing on it is recorded
  cudaGraphExec_t executable_ = nullptr;
  absl::flat_hash_set<const void*> blocks_;                   // all blocks from the pool
  absl::flat_hash_map<const CudaStream*, BlockCache> freed_;  // freed blocks, by stream
  std::vector<FreedBuffer> others_;  // freed by the work, but allocated before it
  int64_t held_ = 0;                 // bytes of freed_ when recording has ended
};

class CudaBackend::CudaRecorder final : public Recorder {
 public:
  explicit CudaRecorder(CudaBackend& backend) : backend_(backend) {}
  // No other work may be being recorded, and no branches may be open (checked).
  absl::StatusOr<std::unique_ptr<Recording>> Record(const ExecutionContext& context,
                                                    const Work& work) override;

 private:
  CudaBackend& backend_;
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_RECORDING_H_
