// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/nvml.h"

#include <dlfcn.h>

#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace voxconv::measure {
namespace {

template <typename Function>
void Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

absl::StatusOr<NvmlCalls> LoadNvml(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::UnavailableError(dlerror());
  NvmlCalls calls;
  Find(handle, "nvmlInit_v2", calls.init);
  Find(handle, "nvmlSystemGetDriverVersion", calls.driver_version);
  Find(handle, "nvmlDeviceGetHandleByPciBusId_v2", calls.device_by_bus_id);
  Find(handle, "nvmlDeviceGetClockInfo", calls.clock);
  Find(handle, "nvmlDeviceGetMaxClockInfo", calls.most_clock);
  Find(handle, "nvmlDeviceGetTemperature", calls.temperature);
  Find(handle, "nvmlDeviceGetPowerUsage", calls.power);
  Find(handle, "nvmlDeviceGetCurrentClocksThrottleReasons", calls.throttle_reasons);
  if (calls.init == nullptr) {
    return absl::UnavailableError(absl::StrCat(library, ": has no function nvmlInit_v2"));
  }
  if (const int error = calls.init(); error != 0) {
    return absl::UnavailableError(absl::StrCat(library, ": nvmlInit_v2 returned ", error));
  }
  return calls;
}

const absl::StatusOr<NvmlCalls>& Nvml() {
  static const auto* calls = new absl::StatusOr<NvmlCalls>(LoadNvml());
  return *calls;
}

absl::StatusOr<std::string> DriverVersion(const NvmlCalls& calls) {
  std::array<char, 96> text{};  // nvml.h: at most 80
  if (calls.driver_version == nullptr ||
      calls.driver_version(text.data(), static_cast<unsigned>(text.size())) != 0) {
    return absl::UnavailableError("the driver does not tell its version");
  }
  return std::string(text.data());
}

}  // namespace voxconv::measure
