// The CUDA backend: one device, explicit streams, stream-ordered memory from a pool, stage times
// from events, an NVTX range a stage.
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
#include "core/backend.h"

namespace voxconv {

class CudaGemm;

struct CudaOptions {
  int device = 0;
  // Bytes of live buffers and of freed blocks that are kept for reuse, at once; 0: what the device
  // has. Blocks measure up to an eighth more than their buffers.
  int64_t memory_limit = 0;
  // Freed blocks serve the next allocations of their stream without a call of the pool. Checkers of
  // memory see less then: the environment variable VOXCONV_CUDA_REUSE_BLOCKS=0 turns it off, and
  // has cuBLASLt's products cleared first, whose stores some checkers do not see.
  bool reuse_blocks = true;
  // Streams collect launches where they are asked to, which needs reuse_blocks. The environment
  // variable VOXCONV_CUDA_COLLECT_LAUNCHES=0 turns it off.
  bool collect_launches = true;
};

// In device memory, for kernels whose blocks take their work one piece after the other: how many
// pieces were taken beyond one a block, how many blocks have finished, and how many have brought
// their share of a piece. Zeros before a kernel and after it, which the kernel sees to; each stream
// has one, because its kernels follow each other.
struct CudaTicket {
  static constexpr int kMaxShared = 1024;
  uint32_t taken, finished;
  uint32_t arrived[kMaxShared];
};

// Work is queued on the stream of the context; nothing uses the default stream. Not thread-safe:
// one thread at a time drives a backend, and finds the backend's device current afterwards. Buffers
// and streams must not outlive it.
class CudaBackend final : public Backend {
 public:
  // Refuses: no device or driver, an index that is not there, a device older than every
  // architecture this program was compiled for, a negative limit.
  static absl::StatusOr<std::unique_ptr<CudaBackend>> Create(const CudaOptions& options);
  ~CudaBackend() override;

  BackendKind kind() const override { return BackendKind::kCuda; }
  std::string DeviceName() const override;
  MemorySpace memory_space() const override { return MemorySpace::kDevice; }
  Stream& main_stream() override;
  // A further stream; ordered with others by events alone.
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream();
  // The index-th of the streams that StreamFork branches to, and an event of its own: made on first
  // use, kept by the backend.
  struct SideStream {
    Stream* stream;
    cudaEvent_t event;
  };
  absl::StatusOr<SideStream> side_stream(int index);

  // A block freed on this stream before, or cudaMallocFromPoolAsync: freed memory is kept for
  // reuse. Released in order after the work that is queued on the allocating stream by then;
  // whoever uses a buffer on another stream waits for that stream first.
  absl::StatusOr<Buffer> Allocate(int64_t bytes, Stream& stream) override;
  // To and from pageable host memory: `from` may be gone when this returns; `to` is filled after
  // Synchronize.
  absl::Status Copy(void* to, MemorySpace to_space, const void* from, MemorySpace from_space,
                    int64_t bytes, Stream& stream) override;
  absl::Status FillBytes(void* data, uint8_t value, int64_t bytes, Stream& stream) override;
  // Page-locked host memory, the backend's own and the caller's until the next call: a copy there
  // does not hold the host up, and must have been waited for by then. The error of the driver's
  // call where there is none to be had.
  absl::StatusOr<void*> HostScratch(int64_t bytes);

  int64_t BeginStage(Stage stage, Stream& stream) override;
  void EndStage(int64_t token, Stage stage, Stream& stream, Profile* profile) override;
  // Synchronises with the last stage.
  absl::Status FlushStages() override;

  // Synchronise where pairs must be counted first: from tables of unknown counts to any layout but
  // a table.
  absl::StatusOr<KernelMap> ConvertKernelMap(const KernelMap& map, const LayoutRequest& request,
                                             const ExecutionContext& context) override;
  absl::StatusOr<KernelMap> TransposeKernelMap(const KernelMap& map,
                                               const ExecutionContext& context) override;
  absl::StatusOr<std::vector<int64_t>> CountPairs(const KernelMap& map,
                                                  const ExecutionContext& context) override;
  absl::StatusOr<Array<int32_t>> SplitCoordinates(const Array<Coordinate>& rows,
                                                  const ExecutionContext& context) override;
  // Of the main stream (checked), on streams of their own. A branch's work may use StreamFork.
  absl::StatusOr<std::unique_ptr<Branches>> OpenBranches(const ExecutionContext& context) override;
  // As a CUDA graph. Waits for all streams first. The work may use StreamFork, but no branches.
  absl::StatusOr<std::unique_ptr<Recording>> Record(const ExecutionContext& context,
                                                    const Work& work) override;
  TensorOps& tensor_ops() override;
  int64_t synchronisations() const override { return synchronisations_; }

  int num_multiprocessors() const { return properties_.multiProcessorCount; }
  // Bytes of shared memory a block may opt into.
  int max_shared_memory() const { return static_cast<int>(properties_.sharedMemPerBlockOptin); }
  // 10 * major + minor.
  int compute_capability() const { return 10 * properties_.major + properties_.minor; }
  // CudaOptions::reuse_blocks is off: whoever has a library write memory clears that first, since
  // checkers see the clearing and may not see the library's stores.
  bool helps_checkers() const { return !options_.reuse_blocks; }
  CudaGemm& gemm() { return *gemm_; }

  // Makes the backend's device the calling thread's: before any call of CUDA whose device is the
  // current one.
  void MakeCurrent() const {
    if (several_devices_) (void)cudaSetDevice(options_.device);
  }
  // For whoever queues work on the stream: `what` is queued next, a kernel's address or another
  // that stands for it. Streams that collect launches know by it what they have launched before.
  void NoteLaunch(Stream& stream, const void* what);

  // The stream's, in device memory, which the stream owns. Never null.
  CudaTicket* ticket(Stream& stream);

  // What has been found out about kernels on this device, by those who launch them
  // (cuda_launch.h): those that may use all shared memory, whether they can start early, and
  // resident blocks on a multiprocessor, 0 where nobody has asked yet.
  std::set<const void*>& large_kernels() { return large_kernels_; }
  std::map<const void*, bool>& early_kernels() { return early_kernels_; }
  int& resident_blocks(const void* kernel, int threads, size_t shared_bytes) {
    return resident_blocks_[{kernel, threads, shared_bytes}];
  }

  // Bytes held by live buffers: now, and at most since the last ResetPeak.
  int64_t BytesInUse() const { return in_use_; }
  int64_t PeakBytes() const { return peak_; }
  // Of freed blocks that are kept for reuse.
  int64_t CachedBytes() const { return cached_; }
  void ResetPeak() { peak_ = in_use_; }

 private:
  class CudaStream;
  class CudaBranches;
  class CudaRecording;
  struct PendingStage {
    cudaEvent_t begin, end;
    Stage stage;
    Profile* profile;
  };

  explicit CudaBackend(const CudaOptions& options);
  absl::Status Initialise();
  absl::Status Exhausted(int64_t bytes) const;
  cudaError_t TakeFromPool(int64_t bytes, CudaStream& owner, void*& data);
  void ReleaseCached();
  // The same, and waits until the memory is there for other sizes.
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
  std::vector<CudaStream*> streams_;  // all there are
  std::unique_ptr<CudaStream> stream_;
  std::vector<std::pair<std::unique_ptr<CudaStream>, cudaEvent_t>> side_streams_;
  std::vector<std::unique_ptr<CudaStream>> lanes_;  // of branches
  bool branches_open_ = false;
  std::vector<cudaEvent_t> free_events_;
  std::vector<cudaEvent_t> free_order_events_;  // without times
  std::vector<PendingStage> pending_;
  absl::Status stage_status_;
  int64_t synchronisations_ = 0;
  void* host_scratch_ = nullptr;
  int64_t host_scratch_bytes_ = 0;
  std::unique_ptr<TensorOps> tensor_ops_;
  std::unique_ptr<CudaGemm> gemm_;
  std::set<const void*> large_kernels_;
  std::map<const void*, bool> early_kernels_;
  std::map<std::tuple<const void*, int, size_t>, int> resident_blocks_;
};

// The backend of a context that runs on CUDA (checked).
CudaBackend& AsCuda(const ExecutionContext& context);

inline cudaStream_t CudaStreamOf(const ExecutionContext& context) {
  return static_cast<cudaStream_t>(context.stream->native_handle());
}

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_BACKEND_H_
