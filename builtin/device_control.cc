// SPDX-License-Identifier: Apache-2.0
#include "voxconv/builtin/device_control.h"

#include "voxconv/core/version.h"
#if VOXCONV_HAVE_CUDA
#include "voxconv/backends/cuda/cuda_device_control.h"
#endif

namespace voxconv {

std::unique_ptr<DeviceControl> MakeDeviceControl(Backend& backend) {
#if VOXCONV_HAVE_CUDA
  if (auto* cuda = dynamic_cast<CudaBackend*>(&backend)) {
    return std::make_unique<CudaDeviceControl>(*cuda);
  }
#else
  (void)backend;
#endif
  return nullptr;
}

}  // namespace voxconv
