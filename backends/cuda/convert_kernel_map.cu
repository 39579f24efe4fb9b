// Conversions between the layouts of a kernel map.
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/cuda_launch.h"
#include "core/kernel_map.h"

namespace voxconv {

absl::StatusOr<KernelMap> CudaBackend::ConvertKernelMap(const KernelMap&, const LayoutRequest&,
                                                        const ExecutionContext&) {
  return absl::UnimplementedError("convert");
}

absl::StatusOr<KernelMap> CudaBackend::TransposeKernelMap(const KernelMap&,
                                                          const ExecutionContext&) {
  return absl::UnimplementedError("transpose");
}

absl::StatusOr<std::vector<int64_t>> CudaBackend::CountPairs(const KernelMap&,
                                                             const ExecutionContext&) {
  return absl::UnimplementedError("count");
}

}  // namespace voxconv
