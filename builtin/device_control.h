// SPDX-License-Identifier: Apache-2.0
// The control of a backend's device (core/device_control.h).
#ifndef VOXCONV_BUILTIN_DEVICE_CONTROL_H_
#define VOXCONV_BUILTIN_DEVICE_CONTROL_H_

#include <memory>

#include "voxconv/core/backend.h"
#include "voxconv/core/device_control.h"

namespace voxconv {

// The caller owns the control, which must not outlive the backend. Null for a backend that is not
// the CUDA backend of this program.
std::unique_ptr<DeviceControl> MakeDeviceControl(Backend& backend);

}  // namespace voxconv

#endif  // VOXCONV_BUILTIN_DEVICE_CONTROL_H_
