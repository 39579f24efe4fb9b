#include "backends/cpu/cpu_backend.h"
#include "core/kernel_map.h"

namespace voxconv {

absl::StatusOr<KernelMap> CpuBackend::ConvertKernelMap(const KernelMap&, const LayoutRequest&,
                                                       const ExecutionContext&) {
  return absl::UnimplementedError("ConvertKernelMap");
}
absl::StatusOr<KernelMap> CpuBackend::TransposeKernelMap(const KernelMap&,
                                                         const ExecutionContext&) {
  return absl::UnimplementedError("TransposeKernelMap");
}

}  // namespace voxconv
