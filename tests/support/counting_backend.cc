// SPDX-License-Identifier: Apache-2.0
#include "tests/support/counting_backend.h"

namespace voxconv {

absl::StatusOr<Buffer> CountingBackend::Allocate(int64_t bytes, Stream& stream) {
  ++allocations_;
  return CpuBackend::Allocate(bytes, stream);
}

absl::Status CountingBackend::Copy(void* to, MemorySpace to_space, const void* from,
                                   MemorySpace from_space, int64_t bytes, Stream& stream) {
  ++copies_;
  return CpuBackend::Copy(to, to_space, from, from_space, bytes, stream);
}

absl::Status CountingBackend::FillBytes(void* data, uint8_t value, int64_t bytes, Stream& stream) {
  ++fills_;
  return CpuBackend::FillBytes(data, value, bytes, stream);
}

void ShareWithCounting(Registry& registry) {
  registry.mappings().Share(BackendKind::kCpu, CountingBackend::kKind);
  registry.dataflows().Share(BackendKind::kCpu, CountingBackend::kKind);
  registry.output_coords().Share(BackendKind::kCpu, CountingBackend::kKind);
}

}  // namespace voxconv
