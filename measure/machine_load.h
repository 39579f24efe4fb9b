// SPDX-License-Identifier: Apache-2.0
// What else the machine did while something was timed.
#ifndef VOXCONV_MEASURE_MACHINE_LOAD_H_
#define VOXCONV_MEASURE_MACHINE_LOAD_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "voxconv/measure/json_file.h"
#include "voxconv/measure/paired.h"

namespace voxconv::measure {

// Time of all cores together since the machine started, in seconds.
struct CpuTimes {
  double total = 0;
  double idle = 0;
  double steal = 0;  // that the host gave to other machines
};
// Reads the first line of /proc/stat. Nothing for a text without it.
std::optional<CpuTimes> ParseCpuTimes(absl::string_view stat);

struct MachineLoad {
  double steal = 0;   // share of all cores' time that the host gave to other machines
  double others = 0;  // share of all cores' time that other processes used
};
// Between two moments, in which this process used `own` seconds of the cores.
MachineLoad LoadBetween(const CpuTimes& begin, const CpuTimes& end, double own);

// Watches the machine from its construction on.
class LoadWatch {
 public:
  LoadWatch();
  // Nothing where the system does not tell, and for so short a time that its counts say nothing.
  std::optional<MachineLoad> Read() const;

 private:
  std::optional<CpuTimes> begin_;
  double own_ = 0;
};

// {"load_average": the three of the system, "steal", "others"}; null for what is not known.
Json LoadJson(const std::optional<MachineLoad>& load);

// Why times that were taken under this load, or that spread like this, say little: one clause for
// people. Empty where there is no reason. `comparison` may be null.
std::string WhyBusy(const std::optional<MachineLoad>& load, const Comparison* comparison);

// Past these, times say little.
inline constexpr double kMostSteal = 0.02;
inline constexpr double kMostOthers = 0.10;
inline constexpr double kMostSpread = 1.5;  // of a ratio's interval, from its low to its high end

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_MACHINE_LOAD_H_
