// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/cuda_map_ops.h"

#include <cuda_runtime_api.h>

#include <numeric>
#include <utility>

#include "voxconv/backends/cuda/cuda_backend.h"
#include "voxconv/backends/cuda/cuda_check.h"
#include "voxconv/backends/cuda/map_conversions.h"
#include "voxconv/backends/cuda/map_table.h"
#include "voxconv/backends/cuda/row_masks.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

// Counts that a copy brings to page-locked memory, and an event behind the copy.
class CountsOnTheirWay final : public PendingCounts {
 public:
  static absl::StatusOr<std::shared_ptr<PendingCounts>> Create(const Array<int64_t>& counts,
                                                               const ExecutionContext& context) {
    std::shared_ptr<CountsOnTheirWay> pending(new CountsOnTheirWay(counts.size(), *context.stream));
    if (counts.size() == 0) return pending;
    const bool collecting = AsCuda(context).IsCollecting(*context.stream);
    VOXCONV_ASSIGN_OR_RETURN(pending->host_, AsCuda(context).HostBuffer(counts.bytes()));
    VOXCONV_RETURN_IF_CUDA_ERROR(
        cudaEventCreateWithFlags(&pending->copied_, cudaEventDisableTiming));
    VOXCONV_RETURN_IF_ERROR(context.backend->Copy(pending->host_.data(), MemorySpace::kHost,
                                                  counts.data(), counts.space(), counts.bytes(),
                                                  *context.stream));
    VOXCONV_RETURN_IF_CUDA_ERROR(cudaEventRecord(pending->copied_, CudaStreamOf(context)));
    if (collecting) VOXCONV_RETURN_IF_ERROR(context.stream->Collect());
    return pending;
  }
  // Page-locked memory must not be given back while the copy may still write to it.
  ~CountsOnTheirWay() override {
    if (!taken_) Wait().IgnoreError();
    if (copied_ != nullptr) cudaEventDestroy(copied_);
  }

  absl::StatusOr<std::vector<int64_t>> Take() override {
    taken_ = true;
    VOXCONV_RETURN_IF_ERROR(Wait());
    std::vector<int64_t> offset_ptr(size_ + 1, 0);
    const auto* counts = static_cast<const int64_t*>(host_.data());
    std::partial_sum(counts, counts + size_, offset_ptr.begin() + 1);
    return offset_ptr;
  }

 private:
  CountsOnTheirWay(int64_t size, Stream& stream) : size_(size), stream_(stream) {}

  absl::Status Wait() {
    if (copied_ == nullptr || cudaEventQuery(copied_) == cudaSuccess) return absl::OkStatus();
    return stream_.Synchronize();
  }

  const int64_t size_;
  Stream& stream_;
  Buffer host_;
  cudaEvent_t copied_ = nullptr;
  bool taken_ = false;
};

class CudaMapOps final : public MapOps {
 public:
  absl::StatusOr<std::shared_ptr<PendingCounts>> StartCounting(
      const KernelMap& table, const ExecutionContext& context) override {
    VOXCONV_ASSIGN_OR_RETURN(const SharedArray<uint32_t> masks, RowMasks(table, context));
    VOXCONV_ASSIGN_OR_RETURN(
        const Array<int64_t> counts,
        CountMaskBits(masks, table.num_outputs(), table.num_offsets(), context));
    return CountsOnTheirWay::Create(counts, context);
  }

 protected:
  absl::StatusOr<PairList> TableToPairs(const KernelMap& table,
                                        const ExecutionContext& context) override {
    return voxconv::TableToPairs(table, context);
  }
  absl::StatusOr<NeighbourTable> PairsToTable(const KernelMap& pairs,
                                              const ExecutionContext& context) override {
    VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> table, OutputTable(pairs, context));
    return NeighbourTable{.table = std::move(table), .masks = {}};
  }
  absl::StatusOr<PairList> TransposePairs(const KernelMap& pairs,
                                          const ExecutionContext& context) override {
    return voxconv::TransposePairs(pairs, context);
  }
  absl::StatusOr<NeighbourTable> TransposeTable(const KernelMap& table,
                                                const ExecutionContext& context) override {
    return voxconv::TransposeTable(table, context);
  }
};

}  // namespace

std::unique_ptr<MapOps> MakeCudaMapOps() { return std::make_unique<CudaMapOps>(); }

}  // namespace voxconv
