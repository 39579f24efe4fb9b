// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/cpu_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"
#include "tbb/info.h"
#include "voxconv/backends/cpu/cpu_map_ops.h"
#include "voxconv/backends/cpu/cpu_tensor_ops.h"
#include "voxconv/backends/cpu/cpu_training_ops.h"
#include "voxconv/backends/cpu/cpu_voxel_ops.h"

namespace voxconv {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int64_t kAlignment = 256;

class CpuStream final : public Stream {
 public:
  absl::Status Synchronize() override { return absl::OkStatus(); }
  void* native_handle() override { return nullptr; }
};

// Sizes are rounded to quarters of a power of two, so that blocks of similar layers are reused at
// the price of at most a quarter unused.
int64_t RoundedSize(int64_t bytes) {
  if (bytes <= kAlignment) return kAlignment;
  const int64_t quarter = std::max<int64_t>(
      int64_t{1} << (absl::bit_width(static_cast<uint64_t>(bytes - 1)) - 3), kAlignment);
  return (bytes + quarter - 1) / quarter * quarter;
}

// A block of `size` bytes. Large ones ask the kernel for huge pages, because rows that are read in
// random order then miss the processor's address table less often. nullptr if none is left.
void* NewBlock(int64_t size) {
#if defined(MADV_HUGEPAGE)
  constexpr int64_t kHugePage = int64_t{2} << 20;
  if (size >= kHugePage / 4 * 3) {  // a block that nearly fills a page gets a whole one
    size = std::max(size, kHugePage);
    void* data = nullptr;
    if (posix_memalign(&data, kHugePage, size) != 0) return nullptr;
    madvise(data, size, MADV_HUGEPAGE);  // a wish: a refusal does no harm
    return data;
  }
#endif
  return std::aligned_alloc(kAlignment, size);
}

}  // namespace

// Keeps freed blocks for reuse: fresh pages cost the kernel's zeroing, which would be timed as if
// it were the mapping's or the dataflow's own work.
class CpuBackend::Pool final : public Buffer::Deleter {
 public:
  explicit Pool(int64_t limit) : limit_(limit) {}
  ~Pool() override { Trim(); }

  absl::StatusOr<Buffer> Allocate(int64_t bytes) {
    if (bytes < 0)
      return absl::InvalidArgumentError(absl::StrCat("allocation of ", bytes, " bytes"));
    if (bytes == 0) return Buffer(nullptr, 0, MemorySpace::kHost, nullptr);
    if (bytes > INT64_MAX / 2) return Exhausted(bytes);
    const int64_t rounded = RoundedSize(bytes);
    std::lock_guard<std::mutex> lock(mutex_);
    VOXCONV_RETURN_IF_ERROR(CheckRoom(bytes));
    void* data = TakeFree(rounded);
    if (data == nullptr) data = NewBlock(rounded);
    if (data == nullptr) {
      Trim();
      data = NewBlock(rounded);
      if (data == nullptr) return Exhausted(bytes);
    }
    Add(bytes);
    return Buffer(data, bytes, MemorySpace::kHost, this);
  }

  void Free(void* data, int64_t bytes) override {
    std::lock_guard<std::mutex> lock(mutex_);
    in_use_ -= bytes;
    if (kReuse) {
      free_.push_back({RoundedSize(bytes), data});
    } else {
      std::free(data);
    }
  }

  // Counts bytes that come from elsewhere, as if they were allocated here.
  absl::Status Book(int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    VOXCONV_RETURN_IF_ERROR(CheckRoom(bytes));
    Add(bytes);
    return absl::OkStatus();
  }
  void Unbook(int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    in_use_ -= bytes;
  }

  int64_t in_use() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return in_use_;
  }
  int64_t peak() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return peak_;
  }
  void ResetPeak() {
    std::lock_guard<std::mutex> lock(mutex_);
    peak_ = in_use_;
  }

 private:
  struct Block {
    int64_t size;
    void* data;
  };
#if defined(__SANITIZE_ADDRESS__)
  static constexpr bool kReuse = false;  // so that the sanitizer sees every block's end of life
#else
  static constexpr bool kReuse = true;
#endif

  absl::Status CheckRoom(int64_t bytes) const {
    return limit_ > 0 && bytes > limit_ - in_use_ ? Exhausted(bytes) : absl::OkStatus();
  }

  void Add(int64_t bytes) {
    in_use_ += bytes;
    peak_ = std::max(peak_, in_use_);
  }

  absl::Status Exhausted(int64_t bytes) const {
    return absl::ResourceExhaustedError(
        absl::StrCat("out of memory: ", bytes, " bytes asked for, ", in_use_, " in use",
                     limit_ > 0 ? absl::StrCat(", ", std::max<int64_t>(0, limit_ - in_use_),
                                               " left of the limit of ", limit_)
                                : ""));
  }

  void* TakeFree(int64_t rounded) {
    for (auto it = free_.rbegin(); it != free_.rend(); ++it) {
      if (it->size != rounded) continue;
      void* data = it->data;
      free_.erase(std::next(it).base());
      return data;
    }
    return nullptr;
  }

  void Trim() {
    for (const Block& block : free_) std::free(block.data);
    free_.clear();
  }

  const int64_t limit_;
  mutable std::mutex mutex_;
  std::vector<Block> free_;
  int64_t in_use_ = 0;
  int64_t peak_ = 0;
};

// Address space whose pages come from the operating system when they are written.
class CpuBackend::Pages final : public Buffer::Deleter {
 public:
  explicit Pages(Pool& pool) : pool_(pool) {}

  absl::StatusOr<Buffer> Reserve(int64_t reserved, int64_t written) {
    if (reserved < 0 || written < 0 || written > reserved) {
      return absl::InvalidArgumentError(
          absl::StrCat("pages of ", reserved, " bytes, of which ", written, " are written"));
    }
    if (reserved == 0) return Buffer(nullptr, 0, MemorySpace::kHost, nullptr);
    VOXCONV_RETURN_IF_ERROR(pool_.Book(written));
    void* data = mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
      pool_.Unbook(written);
      return absl::ResourceExhaustedError(
          absl::StrCat("the operating system refused ", reserved, " bytes of address space"));
    }
    // Huge pages would be zeroed two megabytes at a time, for a few voxels each.
    madvise(data, reserved, MADV_NOHUGEPAGE);
    std::lock_guard<std::mutex> lock(mutex_);
    written_[data] = written;
    return Buffer(data, reserved, MemorySpace::kHost, this);
  }

  void Free(void* data, int64_t bytes) override {
    int64_t written = 0;
    {
      // Before munmap, after which another thread may get the same address.
      std::lock_guard<std::mutex> lock(mutex_);
      written = written_.extract(data).mapped();
    }
    munmap(data, bytes);
    pool_.Unbook(written);
  }

 private:
  Pool& pool_;
  std::mutex mutex_;
  std::unordered_map<void*, int64_t> written_;  // by the address of each live buffer
};

absl::StatusOr<std::unique_ptr<CpuBackend>> CpuBackend::Create(const CpuOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat("threads ", options.threads, ": allowed are 0..",
                                                   kMaxThreads, ", 0 for all cores"));
  }
  if (options.memory_limit < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory limit ", options.memory_limit, ": must be 0 (none) or more bytes"));
  }
  return std::unique_ptr<CpuBackend>(new CpuBackend(options));
}

CpuBackend::CpuBackend(const CpuOptions& options)
    : threads_(options.threads > 0 ? options.threads : tbb::info::default_concurrency()),
      arena_(threads_),
      pool_(std::make_unique<Pool>(options.memory_limit)),
      pages_(std::make_unique<Pages>(*pool_)),
      stream_(std::make_unique<CpuStream>()),
      map_ops_(MakeCpuMapOps()),
      tensor_ops_(MakeCpuTensorOps()),
      training_ops_(MakeCpuTrainingOps()),
      voxel_ops_(MakeCpuVoxelOps()) {}

CpuBackend::~CpuBackend() = default;

std::string CpuBackend::DeviceName() const {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line, model = "CPU";
  while (std::getline(cpuinfo, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    if (size_t colon = line.find(": "); colon != std::string::npos) model = line.substr(colon + 2);
    break;
  }
  return absl::StrCat(model, ", ", threads_, threads_ == 1 ? " thread" : " threads");
}

Stream& CpuBackend::main_stream() { return *stream_; }

absl::StatusOr<Buffer> CpuBackend::Allocate(int64_t bytes, Stream&) {
  return pool_->Allocate(bytes);
}

absl::StatusOr<Buffer> CpuBackend::ReservePages(int64_t reserved, int64_t written) {
  return pages_->Reserve(reserved, written);
}

absl::Status CpuBackend::Copy(void* to, MemorySpace to_space, const void* from,
                              MemorySpace from_space, int64_t bytes, Stream&) {
  VOXCONV_CHECK(to_space == MemorySpace::kHost && from_space == MemorySpace::kHost);
  if (bytes > 0) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status CpuBackend::FillBytes(void* data, uint8_t value, int64_t bytes, Stream&) {
  if (bytes > 0) std::memset(data, value, bytes);
  return absl::OkStatus();
}

int64_t CpuBackend::BeginStage(Stage, Stream&) {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

void CpuBackend::EndStage(int64_t token, Stage stage, bool resumes, Stream&, Profile* profile) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const std::chrono::steady_clock::duration begin(token);
  profile->AddTime(stage, std::chrono::duration<double, std::milli>(now - begin).count(), resumes);
}

MapOps& CpuBackend::map_ops() { return *map_ops_; }
TensorOps& CpuBackend::tensor_ops() { return *tensor_ops_; }

TrainingOps* CpuBackend::training_ops() { return training_ops_.get(); }

VoxelOps* CpuBackend::voxel_ops() { return voxel_ops_.get(); }

int64_t CpuBackend::BytesInUse() const { return pool_->in_use(); }
int64_t CpuBackend::PeakBytes() const { return pool_->peak(); }
void CpuBackend::ResetPeak() { pool_->ResetPeak(); }

CpuBackend& AsCpu(const ExecutionContext& context) {
  auto* backend = dynamic_cast<CpuBackend*>(context.backend);
  VOXCONV_CHECK(backend != nullptr);
  return *backend;
}

}  // namespace voxconv
