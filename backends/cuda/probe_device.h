// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_BACKENDS_CUDA_PROBE_DEVICE_H_
#define VOXCONV_BACKENDS_CUDA_PROBE_DEVICE_H_

namespace voxconv {

// Whether this program holds code for the current device's architecture.
bool DeviceRunsOurKernels();

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_PROBE_DEVICE_H_
