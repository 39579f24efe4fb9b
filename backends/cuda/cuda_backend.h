// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: one device, explicit streams, and stream-ordered memory from a pool. Stage
// times come from events. Each stage is an NVTX range.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_BACKEND_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_BACKEND_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/backends/cuda/host_memory.h"
#include "voxconv/core/backend.h"

namespace voxconv {

class CudaGemm;

struct CudaOptions {
  int device = 0;
  // A stream of the device that somebody else owns. It becomes the main stream. The backend never
  // destroys it, and waits for it when the backend is destroyed. It must outlive the backend. Its
  // owner may queue work on it before and after any call of the backend, except between
  // Stream::Collect and Stream::Submit. Null: the backend makes a main stream of its own.
  cudaStream_t stream = nullptr;
  // The most bytes that live buffers and freed blocks kept for reuse may have at once. 0: no limit
  // but the device's memory. A block is up to an eighth larger than its buffer.
  int64_t memory_limit = 0;
  // A freed block serves the next allocation of its stream without a call to the pool. Memory
  // checkers then see less. The environment variable VOXCONV_CUDA_REUSE_BLOCKS=0 turns this off. It
  // also makes the backend clear the results of cuBLASLt before each product, because some checkers
  // do not see what cuBLASLt stores.
  bool reuse_blocks = true;
  // Streams keep launches back after Stream::Collect. This needs reuse_blocks. The environment
  // variable VOXCONV_CUDA_COLLECT_LAUNCHES=0 turns it off.
  bool collect_launches = true;
};

// Counters in device memory for kernels whose blocks take pieces of work one after the other. All
// are 0 before a kernel starts, and a kernel sets them back to 0 before it ends. Each stream has
// one ticket, which suffices because the kernels of a stream follow each other.
struct CudaTicket {
  static constexpr int kMaxShared = 1024;
  uint32_t taken;                // pieces that were taken, beyond the first of each block
  uint32_t finished;             // blocks that have finished
  uint32_t arrived[kMaxShared];  // blocks that have added their share to a piece
};

// Work is queued on the context's stream. Only a backend that adopts the default stream uses it.
// Not thread-safe: one thread at a time drives a backend. A call makes the backend's device current
// for the calling thread, and leaves it current. Buffers and streams must not outlive the backend.
class CudaBackend final : public Backend {
 public:
  // kInvalidArgument for a negative limit, a device index that does not exist, and a stream of
  // another device (from CUDA 12.8 on). The legacy default stream keeps no launches back and cannot
  // be recorded; its owner makes `device` current before each call. kUnavailable without a device
  // or driver, and for a device that this program has no code for.
  static absl::StatusOr<std::unique_ptr<CudaBackend>> Create(const CudaOptions& options);
  ~CudaBackend() override;

  BackendKind kind() const override { return BackendKind::kCuda; }
  std::string DeviceName() const override;
  Device device() const override { return {MemorySpace::kDevice, options_.device}; }
  bool asynchronous() const override { return true; }
  Stream& main_stream() override;
  // A further stream, which the caller owns. Only events order it with other streams.
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream();
  // A stream that StreamFork branches to, and its event. The backend makes the `index`-th one on
  // first use, and owns it.
  struct SideStream {
    Stream* stream;
    cudaEvent_t event;
  };
  absl::StatusOr<SideStream> side_stream(int index);

  // Whether a stream of this backend keeps work back (Stream::Collect).
  static bool IsCollecting(const Stream& stream);

  // Memory that was freed on `stream` before, or memory from the pool. Freeing a buffer is ordered
  // after the work that is queued on `stream` by then. Work on another stream that uses the buffer
  // must be ordered before that by the caller.
  absl::StatusOr<Buffer> Allocate(int64_t bytes, Stream& stream) override;
  // From pageable host memory: `from` may be gone when this function returns. To host memory: `to`
  // is filled after Synchronize.
  absl::Status Copy(void* to, MemorySpace to_space, const void* from, MemorySpace from_space,
                    int64_t bytes, Stream& stream) override;
  absl::Status FillBytes(void* data, uint8_t value, int64_t bytes, Stream& stream) override;
  // Page-locked host memory, so that a copy to it does not block the host. Freed memory serves
  // later calls: the caller must have waited for its copies before it frees the buffer. Returns the
  // driver's error if there is no memory.
  absl::StatusOr<Buffer> HostBuffer(int64_t bytes) {
    return host_memory_.Allocate(bytes, synchronisations_);
  }

  int64_t BeginStage(Stage stage, Stream& stream) override;
  void EndStage(int64_t token, Stage stage, bool resumes, Stream& stream,
                Profile* profile) override;
  // Blocks the host until the last stage has ended.
  absl::Status FlushStages() override;

  // The context's stream must be the main stream (checked). Lanes have streams of their own. The
  // work of a branch may use StreamFork.
  absl::StatusOr<std::unique_ptr<Branches>> OpenBranches(const ExecutionContext& context) override;
  MapOps& map_ops() override;
  TensorOps& tensor_ops() override;
  TrainingOps* training_ops() override;
  VoxelOps* voxel_ops() override;
  // Records CUDA graphs. Record waits for all streams first. The recorded work may use StreamFork.
  // It must not open branches.
  Recorder* recorder() override;
  int64_t synchronisations() const override { return synchronisations_; }

  int num_multiprocessors() const { return properties_.multiProcessorCount; }
  // The most bytes of shared memory that a block can have.
  int max_shared_memory() const { return static_cast<int>(properties_.sharedMemPerBlockOptin); }
  // 10 * major + minor.
  int compute_capability() const { return 10 * properties_.major + properties_.minor; }
  // Whether CudaOptions::reuse_blocks is off. Then code that lets a library write memory clears the
  // memory first: memory checkers see the clearing, and may not see the library's stores.
  bool helps_checkers() const { return !options_.reuse_blocks; }
  CudaGemm& gemm() { return *gemm_; }

  // Makes the backend's device current for the calling thread. Needed before each CUDA call that
  // works on the current device.
  void MakeCurrent() const {
    if (several_devices_) (void)cudaSetDevice(options_.device);
  }
  // Must be called before work is queued on `stream` by a CUDA call. `what` identifies the work:
  // the kernel's address, or any other address that stands for it. A stream that keeps launches
  // back uses it to find the graph that it launched before. Makes the backend's device current.
  void NoteLaunch(Stream& stream, const void* what);

  // The ticket of `stream`, in device memory. The stream owns it. Never null.
  CudaTicket* ticket(Stream& stream);

  // What cuda_launch.h has asked the driver about kernels: the kernels that were allowed to use all
  // shared memory, whether a kernel can start early, and how many of its blocks a multiprocessor
  // holds (0: not asked yet).
  std::set<const void*>& large_kernels() { return large_kernels_; }
  std::map<const void*, bool>& early_kernels() { return early_kernels_; }
  int& resident_blocks(const void* kernel, int threads, size_t shared_bytes) {
    return resident_blocks_[{kernel, threads, shared_bytes}];
  }

  // Bytes of live buffers: now, and the most since the last ResetPeak.
  int64_t BytesInUse() const { return in_use_; }
  int64_t PeakBytes() const override { return peak_; }
  // Bytes of freed blocks that are kept for reuse.
  int64_t CachedBytes() const { return cached_; }
  void ResetPeak() { peak_ = in_use_; }

 private:
  class CudaStream;
  class CudaBranches;
  class CudaRecording;
  class CudaRecorder;
  struct PendingStage {
    cudaEvent_t begin, end;
    Stage stage;
    bool resumes;
    Profile* profile;
  };

  explicit CudaBackend(const CudaOptions& options);
  absl::Status Initialise();
  absl::Status CheckAdoptedStream() const;
  absl::Status Exhausted(int64_t bytes) const;
  cudaError_t TakeFromPool(int64_t bytes, CudaStream& owner, void*& data);
  void ReleaseCached();
  // Also waits for all streams, so that the memory can serve other sizes.
  void ReleaseCachedNow();
  cudaEvent_t TakeEvent();
  absl::StatusOr<cudaEvent_t> TakeOrderEvent();
  absl::StatusOr<CudaStream*> LaneStream(int index);

  CudaOptions options_;
  cudaDeviceProp properties_{};
  bool several_devices_ = false;
  cudaMemPool_t pool_ = nullptr;
  CudaRecording* recording_ = nullptr;  // while work is recorded
  int64_t in_use_ = 0;
  int64_t peak_ = 0;
  int64_t cached_ = 0;                // bytes of freed blocks that streams keep
  std::vector<CudaStream*> streams_;  // all streams that exist
  std::unique_ptr<CudaStream> stream_;
  std::vector<std::pair<std::unique_ptr<CudaStream>, cudaEvent_t>> side_streams_;
  std::vector<std::unique_ptr<CudaStream>> lanes_;  // streams of branches
  bool branches_open_ = false;
  std::vector<cudaEvent_t> free_events_;
  std::vector<cudaEvent_t> free_order_events_;  // without times
  std::vector<PendingStage> pending_;
  absl::Status stage_status_;
  int64_t synchronisations_ = 0;
  HostMemory host_memory_;
  std::unique_ptr<MapOps> map_ops_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<TensorOps> tensor_ops_;
  std::unique_ptr<TrainingOps> training_ops_;
  std::unique_ptr<CudaGemm> gemm_;
  std::set<const void*> large_kernels_;
  std::map<const void*, bool> early_kernels_;
  std::map<std::tuple<const void*, int, size_t>, int> resident_blocks_;
  std::unique_ptr<VoxelOps> voxel_ops_;
};

// The backend of a context that runs on CUDA (checked).
CudaBackend& AsCuda(const ExecutionContext& context);

inline cudaStream_t CudaStreamOf(const ExecutionContext& context) {
  return static_cast<cudaStream_t>(context.stream->native_handle());
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_BACKEND_H_
