#include "core/backend_support.h"

#include "absl/strings/str_cat.h"

namespace voxconv {
namespace {

Support CpuF32(absl::string_view name, const ConvShape& shape) {
  if (shape.dtype == DType::kF32) return Support::Yes();
  return Support::No(absl::StrCat(name, " on the CPU takes f32 only, not ", ToString(shape.dtype)));
}

}  // namespace

Support CpuOnly(absl::string_view name, BackendKind backend) {
  if (backend == BackendKind::kCpu) return Support::Yes();
  return Support::No(absl::StrCat(name, " has no CUDA implementation"));
}

Support CpuAndCuda(absl::string_view name, BackendKind backend) {
  if (backend == BackendKind::kCpu || kHaveCuda) return Support::Yes();
  return Support::No(absl::StrCat(name, ": this program was built without CUDA"));
}

Support CpuAndCuda(absl::string_view name, const ConvShape& shape, BackendKind backend) {
  if (backend == BackendKind::kCpu) return CpuF32(name, shape);
  return CpuAndCuda(name, backend);
}

Support CpuF32Only(absl::string_view name, const ConvShape& shape, BackendKind backend) {
  if (backend == BackendKind::kCpu) return CpuF32(name, shape);
  return CpuOnly(name, backend);
}

absl::Status CheckChannels(absl::string_view name, const ConvShape& shape) {
  if (shape.c_in >= 1 && shape.c_out >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", shape.c_in, " input and ", shape.c_out,
                                                 " output channels; at least 1 of each is needed"));
}

}  // namespace voxconv
