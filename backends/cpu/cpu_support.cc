#include "backends/cpu/cpu_support.h"

#include "absl/strings/str_cat.h"

namespace voxconv {

Support CpuOnly(absl::string_view name, BackendKind backend) {
  if (backend == BackendKind::kCpu) return Support::Yes();
  return Support::No(absl::StrCat(name, " has no CUDA implementation yet"));
}

Support CpuF32Only(absl::string_view name, const ConvShape& shape, BackendKind backend) {
  if (backend == BackendKind::kCpu && shape.dtype != DType::kF32) {
    return Support::No(
        absl::StrCat(name, " on the CPU takes f32 only, not ", ToString(shape.dtype)));
  }
  return CpuOnly(name, backend);
}

absl::Status CheckChannels(absl::string_view name, const ConvShape& shape) {
  if (shape.c_in >= 1 && shape.c_out >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", shape.c_in, " input and ", shape.c_out,
                                                 " output channels; at least 1 of each is needed"));
}

}  // namespace voxconv
