// SPDX-License-Identifier: Apache-2.0
// The clocks, power and temperature of the GPU while something was timed on it.
#ifndef VOXCONV_MEASURE_GPU_WATCH_H_
#define VOXCONV_MEASURE_GPU_WATCH_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/measure/json_file.h"
#include "voxconv/measure/nvml.h"

namespace voxconv::measure {

// What the driver told at one moment. Absent: it does not tell.
struct GpuState {
  std::optional<double> sm_mhz, memory_mhz, power_w, temperature_c;
  std::optional<uint64_t> throttle_reasons;  // bits of nvml.h
};

// The reasons, in words, for which clocks are lower than the GPU could run: "power cap", "heat".
// That the GPU idles, or that its clocks are set, is none.
std::vector<std::string> ThrottleReasons(uint64_t bits);

// Watches one GPU. Samples are taken between timed runs, by the caller.
class GpuWatch {
 public:
  // Of a backend. Watches nothing on the CPU.
  explicit GpuWatch(Backend& backend);
  // Of the device with this bus id, by these calls, which may be why there are none.
  GpuWatch(const absl::StatusOr<NvmlCalls>& calls, const std::string& bus_id);

  // Takes a sample unless the last one is younger than `at_least`: it takes the driver some time.
  void Sample(std::chrono::milliseconds at_least = std::chrono::milliseconds(20));
  const std::vector<GpuState>& samples() const { return samples_; }

  // Null on the CPU. {"absent": WHY} where the driver tells nothing. Otherwise {"samples",
  // "sm_mhz", "memory_mhz", "power_w", "temperature_c": each {"first", "least", "most", "last"} or
  // null, "most_sm_mhz", "throttled": [WORDS]}.
  Json ToJson() const;
  // One clause for people where clocks fell or were held down while the watch ran: "the SM clock
  // fell from 1980 to 1410 MHz (power cap)". Empty otherwise.
  std::string WhySlow() const;

 private:
  void Open(const absl::StatusOr<NvmlCalls>& calls, const std::string& bus_id);
  std::vector<std::string> Throttled() const;

  bool watches_ = false;
  std::string absent_;
  NvmlCalls calls_;
  void* device_ = nullptr;
  std::optional<double> most_sm_mhz_;
  std::chrono::steady_clock::time_point last_;
  std::vector<GpuState> samples_;
};

// A clock that is lower by more than this share than it was before has fallen.
inline constexpr double kClockFall = 0.05;

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_GPU_WATCH_H_
