// SPDX-License-Identifier: Apache-2.0
#include "voxconv/builtin/backends.h"

#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/version.h"
#if VOXCONV_HAVE_CUDA
#include "voxconv/backends/cuda/cuda_backend.h"
#endif

namespace voxconv {

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendChoice& choice) {
  if (choice.kind == BackendKind::kCpu) {
    return CpuBackend::Create({.threads = choice.threads, .memory_limit = choice.memory_limit});
  }
#if VOXCONV_HAVE_CUDA
  return CudaBackend::Create({.device = choice.device, .memory_limit = choice.memory_limit});
#else
  return absl::UnimplementedError("backend cuda: this program was built without CUDA");
#endif
}

}  // namespace voxconv
