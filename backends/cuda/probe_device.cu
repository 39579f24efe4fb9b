// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "voxconv/backends/cuda/probe_device.h"

namespace voxconv {
namespace {

__global__ void Probe() {}

}  // namespace

bool DeviceRunsOurKernels() {
  cudaFuncAttributes attributes;
  const cudaError_t error =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&Probe));
  (void)cudaGetLastError();
  return error == cudaSuccess;
}

}  // namespace voxconv
