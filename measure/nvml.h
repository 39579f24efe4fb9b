// SPDX-License-Identifier: Apache-2.0
// The management library of NVIDIA's driver (NVML), loaded at run time: no part of a build.
#ifndef VOXCONV_MEASURE_NVML_H_
#define VOXCONV_MEASURE_NVML_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace voxconv::measure {

// The functions that are used, by the signatures of nvml.h. All return 0 for success. Tests give
// their own.
struct NvmlCalls {
  int (*init)() = nullptr;
  int (*driver_version)(char* text, unsigned length) = nullptr;
  int (*device_by_bus_id)(const char* bus_id, void** device) = nullptr;
  int (*clock)(void* device, int domain, unsigned* mhz) = nullptr;
  int (*most_clock)(void* device, int domain, unsigned* mhz) = nullptr;
  int (*temperature)(void* device, int sensor, unsigned* celsius) = nullptr;
  int (*power)(void* device, unsigned* milliwatts) = nullptr;
  int (*throttle_reasons)(void* device, uint64_t* reasons) = nullptr;
};

// Values of nvml.h.
inline constexpr int kNvmlSmClock = 1;
inline constexpr int kNvmlMemoryClock = 2;
inline constexpr int kNvmlGpuSensor = 0;

// Loads the library, which stays loaded, and initialises it. kUnavailable with the reason where
// there is none, or no driver. A function that the library lacks stays null.
absl::StatusOr<NvmlCalls> LoadNvml(const char* library = "libnvidia-ml.so.1");
// The same for the driver's own library, loaded once in a process.
const absl::StatusOr<NvmlCalls>& Nvml();

// The driver's version, such as "580.65.06". kUnavailable where it cannot be read.
absl::StatusOr<std::string> DriverVersion(const NvmlCalls& calls);

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_NVML_H_
