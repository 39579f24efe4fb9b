// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/gpu_watch.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "voxconv/builtin/device_control.h"

namespace voxconv::measure {
namespace {

// Bits of nvmlClocksThrottleReasons in nvml.h. Left out: 0x1, idle; 0x2 and 0x100, clocks that were
// set by somebody.
constexpr std::array<std::pair<uint64_t, const char*>, 6> kReasons = {{
    {0x4, "power cap"},
    {0x8, "slowdown by the hardware"},
    {0x10, "clocks in step with other GPUs"},
    {0x20, "heat"},
    {0x40, "heat, by the hardware"},
    {0x80, "power brake"},
}};

template <typename Call, typename... Arguments>
std::optional<double> Read(Call call, Arguments... arguments) {
  unsigned value = 0;
  if (call == nullptr || call(arguments..., &value) != 0) return std::nullopt;
  return static_cast<double>(value);
}

// Of the samples that have it.
std::vector<double> Known(const std::vector<GpuState>& samples,
                          std::optional<double> GpuState::*value) {
  std::vector<double> known;
  for (const GpuState& sample : samples) {
    if ((sample.*value).has_value()) known.push_back(*(sample.*value));
  }
  return known;
}

Json SpanJson(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {{"first", values.front()}, {"least", *least}, {"most", *most}, {"last", values.back()}};
}

}  // namespace

std::vector<std::string> ThrottleReasons(uint64_t bits) {
  std::vector<std::string> words;
  for (const auto& [bit, word] : kReasons) {
    if ((bits & bit) != 0) words.emplace_back(word);
  }
  return words;
}

GpuWatch::GpuWatch(Backend& backend) {
  if (backend.kind() != BackendKind::kCuda) return;
  watches_ = true;
  const std::unique_ptr<DeviceControl> control = MakeDeviceControl(backend);
  if (control == nullptr) {
    absent_ = "this backend's device has no address";
    return;
  }
  const absl::StatusOr<std::string> bus_id = control->BusId();
  if (!bus_id.ok()) {
    absent_ = std::string(bus_id.status().message());
    return;
  }
  Open(Nvml(), *bus_id);
}

GpuWatch::GpuWatch(const absl::StatusOr<NvmlCalls>& calls, const std::string& bus_id)
    : watches_(true) {
  Open(calls, bus_id);
}

void GpuWatch::Open(const absl::StatusOr<NvmlCalls>& calls, const std::string& bus_id) {
  if (!calls.ok()) {
    absent_ = std::string(calls.status().message());
    return;
  }
  calls_ = *calls;
  const int error =
      calls_.device_by_bus_id == nullptr ? -1 : calls_.device_by_bus_id(bus_id.c_str(), &device_);
  if (error != 0) {
    device_ = nullptr;
    absent_ = absl::StrFormat("the driver's library knows no device %s (error %d)", bus_id, error);
    return;
  }
  most_sm_mhz_ = Read(calls_.most_clock, device_, kNvmlSmClock);
}

void GpuWatch::Sample(std::chrono::milliseconds at_least) {
  if (device_ == nullptr) return;
  const auto now = std::chrono::steady_clock::now();
  if (!samples_.empty() && now - last_ < at_least) return;
  GpuState state;
  state.sm_mhz = Read(calls_.clock, device_, kNvmlSmClock);
  state.memory_mhz = Read(calls_.clock, device_, kNvmlMemoryClock);
  state.temperature_c = Read(calls_.temperature, device_, kNvmlGpuSensor);
  if (const auto milliwatts = Read(calls_.power, device_)) state.power_w = *milliwatts / 1000;
  uint64_t reasons = 0;
  if (calls_.throttle_reasons != nullptr && calls_.throttle_reasons(device_, &reasons) == 0) {
    state.throttle_reasons = reasons;
  }
  samples_.push_back(state);
  last_ = std::chrono::steady_clock::now();
}

std::vector<std::string> GpuWatch::Throttled() const {
  uint64_t bits = 0;
  for (const GpuState& sample : samples_) bits |= sample.throttle_reasons.value_or(0);
  return ThrottleReasons(bits);
}

Json GpuWatch::ToJson() const {
  if (!watches_) return nullptr;
  if (device_ == nullptr) return {{"absent", absent_}};
  return {{"samples", samples_.size()},
          {"sm_mhz", SpanJson(Known(samples_, &GpuState::sm_mhz))},
          {"memory_mhz", SpanJson(Known(samples_, &GpuState::memory_mhz))},
          {"power_w", SpanJson(Known(samples_, &GpuState::power_w))},
          {"temperature_c", SpanJson(Known(samples_, &GpuState::temperature_c))},
          {"most_sm_mhz", most_sm_mhz_.has_value() ? Json(*most_sm_mhz_) : Json()},
          {"throttled", Throttled()}};
}

std::string GpuWatch::WhySlow() const {
  double highest = 0, from = 0, to = 0;
  for (const double mhz : Known(samples_, &GpuState::sm_mhz)) {
    highest = std::max(highest, mhz);
    if (highest - mhz > from - to) {
      from = highest;
      to = mhz;
    }
  }
  const std::string reasons = absl::StrJoin(Throttled(), ", ");
  if (to < from * (1 - kClockFall)) {
    return absl::StrFormat("the SM clock fell from %.0f to %.0f MHz%s", from, to,
                           reasons.empty() ? "" : " (" + reasons + ")");
  }
  return reasons.empty() ? "" : "clocks held down: " + reasons;
}

}  // namespace voxconv::measure
