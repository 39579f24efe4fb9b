// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/cuda_backend.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nvtx3/nvToolsExt.h"
#include "voxconv/backends/cuda/cuda_check.h"
#include "voxconv/backends/cuda/cuda_gemm.h"
#include "voxconv/backends/cuda/cuda_map_ops.h"
#include "voxconv/backends/cuda/cuda_recording.h"
#include "voxconv/backends/cuda/cuda_stream.h"
#include "voxconv/backends/cuda/cuda_tensor_ops.h"
#include "voxconv/backends/cuda/cuda_training_ops.h"
#include "voxconv/backends/cuda/cuda_voxel_ops.h"
#include "voxconv/backends/cuda/probe_device.h"

namespace voxconv {
namespace {

// What NoteLaunch calls copies and fills.
constexpr char kCopied = 0, kFilled = 0;

}  // namespace

CudaBackend::CudaBackend(const CudaOptions& options) : options_(options) {
  const auto read = [](const char* name, bool& option) {
    if (const char* set = std::getenv(name)) option = std::string_view(set) != "0";
  };
  read("VOXCONV_CUDA_REUSE_BLOCKS", options_.reuse_blocks);
  read("VOXCONV_CUDA_COLLECT_LAUNCHES", options_.collect_launches);
}

absl::StatusOr<std::unique_ptr<CudaBackend>> CudaBackend::Create(const CudaOptions& options) {
  if (options.memory_limit < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory limit ", options.memory_limit, ": must be 0 (none) or more bytes"));
  }
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    return absl::UnavailableError(
        absl::StrCat("backend cuda: no CUDA device (",
                     error == cudaSuccess ? "none found" : cudaGetErrorString(error), ")"));
  }
  if (options.device < 0 || options.device >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", options.device, ": allowed are 0..", count - 1));
  }
  std::unique_ptr<CudaBackend> backend(new CudaBackend(options));
  backend->several_devices_ = count > 1;
  VOXCONV_RETURN_IF_ERROR(backend->CheckAdoptedStream());
  VOXCONV_RETURN_IF_ERROR(backend->Initialise());
  return backend;
}

absl::Status CudaBackend::CheckAdoptedStream() const {
  // Each device has its own legacy default stream.
  if (options_.stream == nullptr || options_.stream == cudaStreamLegacy) return absl::OkStatus();
#if CUDART_VERSION >= 12080
  int device = 0;
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  const cudaError_t error = cudaStreamGetDevice(options_.stream, &device);
  if (error == cudaErrorCallRequiresNewerDriver) {  // an older driver cannot tell the device
    (void)cudaGetLastError();
    return absl::OkStatus();
  }
  VOXCONV_RETURN_IF_CUDA_ERROR(error);
  if (device != options_.device) {
    return absl::InvalidArgumentError(absl::StrCat("stream: a stream of device ", device,
                                                   "; it must be of device ", options_.device));
  }
#endif
  return absl::OkStatus();
}

absl::Status CudaBackend::Initialise() {
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties_, options_.device));
  if (!DeviceRunsOurKernels()) {
    return absl::UnavailableError(absl::StrCat(
        "device ", options_.device, ": ", properties_.name, " has compute capability ",
        properties_.major, ".", properties_.minor, ", which this program has no code for"));
  }
  cudaMemPoolProps pool{};
  pool.allocType = cudaMemAllocationTypePinned;
  pool.location = {cudaMemLocationTypeDevice, options_.device};
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaMemPoolCreate(&pool_, &pool));
  // Freed memory stays in the pool, unless it counts against a limit.
  uint64_t keep = options_.memory_limit > 0 ? 0 : UINT64_MAX;
  VOXCONV_RETURN_IF_CUDA_ERROR(
      cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep));
  stream_ = std::make_unique<CudaStream>(*this, options_.stream);
  VOXCONV_RETURN_IF_ERROR(stream_->Initialise());
  map_ops_ = MakeCudaMapOps();
  recorder_ = std::make_unique<CudaRecorder>(*this);
  tensor_ops_ = MakeCudaTensorOps();
  training_ops_ = MakeCudaTrainingOps();
  voxel_ops_ = MakeCudaVoxelOps();
  // Page-locking memory may wait for the device. Do it before a frame or a training step needs it.
  // A block serves the sizes of a chain's levels, 48 bytes each, the numbers of pairs of a map, 8
  // bytes an offset, or the result of a step.
  constexpr int kHostBlocks = 32;
  constexpr int64_t kBlockBytes = 4096;
  std::vector<Buffer> blocks(kHostBlocks);
  for (Buffer& block : blocks) {
    VOXCONV_ASSIGN_OR_RETURN(block, HostBuffer(kBlockBytes));
  }
  synchronisations_ = 0;
  VOXCONV_ASSIGN_OR_RETURN(gemm_, MakeCudaGemm());
  return absl::OkStatus();
}

CudaBackend::~CudaBackend() {
  MakeCurrent();
  if (stream_ != nullptr) stream_->Synchronize().IgnoreError();
  for (const PendingStage& stage : pending_) {
    cudaEventDestroy(stage.begin);
    if (stage.end != nullptr) cudaEventDestroy(stage.end);
  }
  for (cudaEvent_t event : free_events_) cudaEventDestroy(event);
  for (cudaEvent_t event : free_order_events_) cudaEventDestroy(event);
  for (const auto& [stream, event] : side_streams_) cudaEventDestroy(event);
  side_streams_.clear();
  lanes_.clear();
  gemm_.reset();
  stream_.reset();
  if (pool_ != nullptr) cudaMemPoolDestroy(pool_);
}

std::string CudaBackend::DeviceName() const { return properties_.name; }

Stream& CudaBackend::main_stream() { return *stream_; }

void CudaBackend::NoteLaunch(Stream& stream, const void* what) {
  MakeCurrent();
  static_cast<CudaStream&>(stream).Note(what);
}

CudaTicket* CudaBackend::ticket(Stream& stream) {
  return static_cast<CudaStream&>(stream).ticket();
}

absl::StatusOr<std::unique_ptr<Stream>> CudaBackend::MakeStream() {
  auto stream = std::make_unique<CudaStream>(*this);
  VOXCONV_RETURN_IF_ERROR(stream->Initialise());
  return stream;
}

absl::StatusOr<CudaBackend::SideStream> CudaBackend::side_stream(int index) {
  while (static_cast<int>(side_streams_.size()) <= index) {
    auto stream = std::make_unique<CudaStream>(*this);
    VOXCONV_RETURN_IF_ERROR(stream->Initialise());
    cudaEvent_t event = nullptr;
    VOXCONV_RETURN_IF_CUDA_ERROR(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    side_streams_.emplace_back(std::move(stream), event);
  }
  return SideStream{side_streams_[index].first.get(), side_streams_[index].second};
}

void CudaBackend::ReleaseCached() {
  for (CudaStream* stream : streams_) stream->ReleaseCached();
}

void CudaBackend::ReleaseCachedNow() {
  ReleaseCached();
  ++synchronisations_;
  for (CudaStream* stream : streams_) {
    (void)cudaStreamSynchronize(stream->get());
    stream->ReleaseGraphs();
  }
}

absl::Status CudaBackend::Exhausted(int64_t bytes) const {
  size_t free = 0, total = 0;
  (void)cudaMemGetInfo(&free, &total);
  const std::string left = options_.memory_limit > 0
                               ? absl::StrCat(std::max<int64_t>(0, options_.memory_limit - in_use_),
                                              " left of the limit of ", options_.memory_limit)
                               : absl::StrCat(free, " left of the device's ", total);
  return absl::ResourceExhaustedError(
      absl::StrCat("out of memory: ", bytes, " bytes asked for, ", in_use_, " in use, ", left));
}

cudaError_t CudaBackend::TakeFromPool(int64_t bytes, CudaStream& owner, void*& data) {
  const int64_t size = options_.reuse_blocks ? BlockCache::BlockSize(bytes) : bytes;
  const cudaError_t error = cudaMallocFromPoolAsync(&data, size, pool_, owner.get());
  if (error != cudaErrorMemoryAllocation) return error;
  // Memory that was freed but has not returned to the pool yet may be enough.
  (void)cudaGetLastError();
  ReleaseCachedNow();
  return cudaMallocFromPoolAsync(&data, size, pool_, owner.get());
}

absl::StatusOr<Buffer> CudaBackend::Allocate(int64_t bytes, Stream& stream) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("allocation of ", bytes, " bytes"));
  if (bytes == 0) return Buffer(nullptr, 0, MemorySpace::kDevice, nullptr);
  if (options_.memory_limit > 0 && bytes > options_.memory_limit - in_use_) return Exhausted(bytes);
  MakeCurrent();
  CudaStream& owner = static_cast<CudaStream&>(stream);
  cudaError_t error = cudaSuccess;
  void* data = nullptr;
  if (recording_ != nullptr) {
    error = recording_->TakeBlock(bytes, owner, data);
  } else if (data = owner.TakeCached(bytes); data == nullptr) {
    VOXCONV_RETURN_IF_ERROR(owner.Submit());
    if (options_.memory_limit > 0 && bytes + cached_ > options_.memory_limit - in_use_) {
      ReleaseCachedNow();
    }
    error = TakeFromPool(bytes, owner, data);
  }
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return Exhausted(bytes);
  }
  VOXCONV_RETURN_IF_CUDA_ERROR(error);
  in_use_ += bytes;
  peak_ = std::max(peak_, in_use_);
  return Buffer(data, bytes, MemorySpace::kDevice, &owner);
}

bool CudaBackend::IsCollecting(const Stream& stream) {
  return static_cast<const CudaStream&>(stream).collecting();
}

absl::Status CudaBackend::Copy(void* to, MemorySpace to_space, const void* from,
                               MemorySpace from_space, int64_t bytes, Stream& stream) {
  if (bytes == 0) return absl::OkStatus();
  const bool to_host = to_space == MemorySpace::kHost, from_host = from_space == MemorySpace::kHost;
  const cudaMemcpyKind kind = to_host ? from_host ? cudaMemcpyHostToHost : cudaMemcpyDeviceToHost
                              : from_host ? cudaMemcpyHostToDevice
                                          : cudaMemcpyDeviceToDevice;
  // A replay would read or write the same host memory again.
  if (recording_ != nullptr && kind != cudaMemcpyDeviceToDevice) {
    return absl::FailedPreconditionError(
        "work that is recorded must not copy from or to host memory");
  }
  MakeCurrent();
  CudaStream& queue = static_cast<CudaStream&>(stream);
  if (kind == cudaMemcpyDeviceToDevice) {
    queue.Note(&kCopied);
  } else {
    VOXCONV_RETURN_IF_ERROR(queue.Submit());
  }
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(to, from, bytes, kind, queue.get()));
  return absl::OkStatus();
}

absl::Status CudaBackend::FillBytes(void* data, uint8_t value, int64_t bytes, Stream& stream) {
  if (bytes == 0) return absl::OkStatus();
  NoteLaunch(stream, &kFilled);
  VOXCONV_RETURN_IF_CUDA_ERROR(
      cudaMemsetAsync(data, value, bytes, static_cast<CudaStream&>(stream).get()));
  return absl::OkStatus();
}

cudaEvent_t CudaBackend::TakeEvent() {
  if (!free_events_.empty()) {
    const cudaEvent_t event = free_events_.back();
    free_events_.pop_back();
    return event;
  }
  MakeCurrent();
  cudaEvent_t event = nullptr;
  if (const cudaError_t error = cudaEventCreate(&event); error != cudaSuccess) {
    stage_status_.Update(CudaError(error, "cudaEventCreate", __FILE__, __LINE__));
  }
  return event;
}

absl::StatusOr<cudaEvent_t> CudaBackend::TakeOrderEvent() {
  cudaEvent_t event = nullptr;
  if (!free_order_events_.empty()) {
    event = free_order_events_.back();
    free_order_events_.pop_back();
  } else {
    MakeCurrent();
    VOXCONV_RETURN_IF_CUDA_ERROR(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  return event;
}

int64_t CudaBackend::BeginStage(Stage stage, Stream& stream) {
  nvtxRangePushA(ToString(stage).data());
  stage_status_.Update(stream.Submit());  // events of a graph have no times
  const cudaEvent_t event = TakeEvent();
  if (event != nullptr) cudaEventRecord(event, static_cast<CudaStream&>(stream).get());
  pending_.push_back({event, nullptr, stage, false, nullptr});
  return static_cast<int64_t>(pending_.size()) - 1;
}

void CudaBackend::EndStage(int64_t token, Stage, bool resumes, Stream& stream, Profile* profile) {
  nvtxRangePop();
  stage_status_.Update(stream.Submit());
  PendingStage& pending = pending_[token];
  pending.resumes = resumes;
  pending.profile = profile;
  pending.end = TakeEvent();
  if (pending.end != nullptr) {
    cudaEventRecord(pending.end, static_cast<CudaStream&>(stream).get());
  }
}

absl::Status CudaBackend::FlushStages() {
  absl::Status status = std::exchange(stage_status_, absl::OkStatus());
  if (!pending_.empty()) ++synchronisations_;
  for (const PendingStage& pending : pending_) {
    float ms = 0;
    if (pending.begin != nullptr && pending.end != nullptr) {
      cudaError_t error = cudaEventSynchronize(pending.end);
      if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, pending.begin, pending.end);
      if (error != cudaSuccess) {
        status.Update(CudaError(error, "cudaEventElapsedTime", __FILE__, __LINE__));
      } else if (pending.profile != nullptr) {
        pending.profile->AddTime(pending.stage, ms, pending.resumes);
      }
    }
    if (pending.begin != nullptr) free_events_.push_back(pending.begin);
    if (pending.end != nullptr) free_events_.push_back(pending.end);
  }
  pending_.clear();
  return status;
}

MapOps& CudaBackend::map_ops() { return *map_ops_; }

TensorOps& CudaBackend::tensor_ops() { return *tensor_ops_; }

TrainingOps* CudaBackend::training_ops() { return training_ops_.get(); }

VoxelOps* CudaBackend::voxel_ops() { return voxel_ops_.get(); }

Recorder* CudaBackend::recorder() { return recorder_.get(); }

CudaBackend& AsCuda(const ExecutionContext& context) {
  VOXCONV_CHECK(context.backend->kind() == BackendKind::kCuda);
  return static_cast<CudaBackend&>(*context.backend);
}

}  // namespace voxconv
