// SPDX-License-Identifier: Apache-2.0
// What measurements ask of a device beside its memory and streams. The framework itself does not
// need it.
#ifndef VOXCONV_CORE_DEVICE_CONTROL_H_
#define VOXCONV_CORE_DEVICE_CONTROL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"

namespace voxconv {

class DeviceControl {
 public:
  virtual ~DeviceControl() = default;

  // The address by which the driver's management library knows the device: "00000000:17:00.0".
  virtual absl::StatusOr<std::string> BusId() const = 0;
  // Bytes of the last-level cache.
  virtual int64_t CacheBytes() const = 0;
  // Queues work on the context's stream after which the last-level cache holds nothing that was
  // read or written before. Does not synchronise. Errors of Backend::Allocate.
  virtual absl::Status EmptyCache(const ExecutionContext& context) = 0;
  // Keeps a part of the last-level cache from all further work of this process, so that about
  // `bytes` are left. Returns what is left. Holds until the control is destroyed. Synchronises the
  // stream. kInvalidArgument names what the device allows.
  virtual absl::StatusOr<int64_t> LimitCache(int64_t bytes, const ExecutionContext& context) = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_DEVICE_CONTROL_H_
