// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/rate_schedule.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace voxconv {

absl::Status CheckSchedule(const RateSchedule& schedule) {
  const auto refuse = [](absl::string_view name, auto value, absl::string_view allowed) {
    return absl::InvalidArgumentError(
        absl::StrCat("rate schedule: ", name, ": ", value, "; ", allowed));
  };
  constexpr absl::string_view kFinite = "it must be finite and at least 0";
  const auto finite = [](double value) { return std::isfinite(value) && value >= 0; };
  if (!finite(schedule.rate)) return refuse("rate", schedule.rate, kFinite);
  if (!finite(schedule.final_rate)) return refuse("final_rate", schedule.final_rate, kFinite);
  if (schedule.warm_up < 0) return refuse("warm_up", schedule.warm_up, "it must be at least 0");
  if (schedule.decay == Decay::kCosine && schedule.steps <= schedule.warm_up) {
    return refuse("steps", schedule.steps,
                  absl::StrCat("it must be more than the warm-up of ", schedule.warm_up));
  }
  return absl::OkStatus();
}

double RateAt(const RateSchedule& schedule, int64_t step) {
  if (step < schedule.warm_up) {
    return schedule.rate * static_cast<double>(step + 1) / static_cast<double>(schedule.warm_up);
  }
  if (schedule.decay == Decay::kNone) return schedule.rate;
  const auto steps = static_cast<double>(schedule.steps - schedule.warm_up);
  const double part = std::min(static_cast<double>(step - schedule.warm_up) / steps, 1.0);
  const double half = 0.5 * (1.0 + std::cos(M_PI * part));
  return schedule.final_rate + (schedule.rate - schedule.final_rate) * half;
}

}  // namespace voxconv
