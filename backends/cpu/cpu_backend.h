// SPDX-License-Identifier: Apache-2.0
// The CPU backend: host memory from a pool with a limit, oneTBB threads, steady-clock stage times.
#ifndef VOXCONV_BACKENDS_CPU_CPU_BACKEND_H_
#define VOXCONV_BACKENDS_CPU_CPU_BACKEND_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tbb/task_arena.h"
#include "voxconv/core/backend.h"

namespace voxconv {

struct CpuOptions {
  int threads = 0;           // 0: all cores that the process may use
  int64_t memory_limit = 0;  // the most bytes that live buffers may have at once; 0: no limit
};

// The backend in host memory. Work is done when the call that queues it returns. Freed memory is
// kept for reuse until the backend is destroyed. Allocate may be called from any thread. Stages
// belong to the thread that drives a run. A backend of another kind may derive from this class;
// plugins that are written for the CPU then run on it too (PluginFamily::Share).
class CpuBackend : public Backend {
 public:
  // kInvalidArgument for negative options and for more than 1024 threads.
  static absl::StatusOr<std::unique_ptr<CpuBackend>> Create(const CpuOptions& options);
  ~CpuBackend() override;

  BackendKind kind() const override { return BackendKind::kCpu; }
  std::string DeviceName() const override;
  Device device() const override { return {MemorySpace::kHost, 0}; }
  bool asynchronous() const override { return false; }
  Stream& main_stream() override;

  absl::StatusOr<Buffer> Allocate(int64_t bytes, Stream& stream) override;
  // Returns `reserved` bytes of address space that read as zero, for arrays of which few pages are
  // ever written: a page takes memory when it is first written. `written` is how many bytes the
  // caller's pages will take. Those count as Allocate's bytes do, against the limit and in the
  // peak. The buffer's end gives the pages back to the operating system. May be called from any
  // thread. kInvalidArgument for negative numbers and for more written than reserved bytes.
  // kResourceExhausted as Allocate, and if the operating system refuses the address space.
  absl::StatusOr<Buffer> ReservePages(int64_t reserved, int64_t written);
  absl::Status Copy(void* to, MemorySpace to_space, const void* from, MemorySpace from_space,
                    int64_t bytes, Stream& stream) override;
  absl::Status FillBytes(void* data, uint8_t value, int64_t bytes, Stream& stream) override;

  int64_t BeginStage(Stage stage, Stream& stream) override;
  void EndStage(int64_t token, Stage stage, bool resumes, Stream& stream,
                Profile* profile) override;
  absl::Status FlushStages() override { return absl::OkStatus(); }

  MapOps& map_ops() override;
  TensorOps& tensor_ops() override;
  TrainingOps* training_ops() override;
  VoxelOps* voxel_ops() override;

  int threads() const { return threads_; }
  tbb::task_arena& arena() { return arena_; }
  // Bytes of live buffers, of pages those that are written: now, and the most since the last
  // ResetPeak.
  int64_t BytesInUse() const;
  int64_t PeakBytes() const override;
  void ResetPeak();

 protected:
  explicit CpuBackend(const CpuOptions& options);

 private:
  class Pool;
  class Pages;

  int threads_;
  tbb::task_arena arena_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Pages> pages_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<MapOps> map_ops_;
  std::unique_ptr<TensorOps> tensor_ops_;
  std::unique_ptr<TrainingOps> training_ops_;
  std::unique_ptr<VoxelOps> voxel_ops_;
};

// The backend of a context that runs on the CPU, or on a backend that derives from it (checked).
CpuBackend& AsCpu(const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_CPU_BACKEND_H_
