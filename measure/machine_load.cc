// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/machine_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace voxconv::measure {
namespace {

// The system counts in hundredths of a second; shares of less than this would be of a few counts.
constexpr double kFewestSeconds = 0.25;

std::optional<CpuTimes> ReadCpuTimes() {
  std::ifstream file("/proc/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return ParseCpuTimes(line);
}

double OwnSeconds() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

std::optional<CpuTimes> ParseCpuTimes(absl::string_view stat) {
  const std::vector<absl::string_view> fields =
      absl::StrSplit(stat.substr(0, stat.find('\n')), ' ', absl::SkipEmpty());
  // cpu user nice system idle iowait irq softirq steal; user has what guests took.
  constexpr size_t kFields = 9, kIdle = 4, kWait = 5, kSteal = 8;
  if (fields.size() < kFields || fields[0] != "cpu") return std::nullopt;
  const auto per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::array<double, kFields> seconds = {};
  CpuTimes times;
  for (size_t i = 1; i < kFields; ++i) {
    if (!absl::SimpleAtod(fields[i], &seconds[i])) return std::nullopt;
    seconds[i] /= per_second;
    times.total += seconds[i];
  }
  times.idle = seconds[kIdle] + seconds[kWait];
  times.steal = seconds[kSteal];
  return times;
}

MachineLoad LoadBetween(const CpuTimes& begin, const CpuTimes& end, double own) {
  const double total = end.total - begin.total;
  if (total <= 0) return {};
  const double steal = end.steal - begin.steal;
  const double busy = total - (end.idle - begin.idle) - steal;
  return {std::clamp(steal / total, 0.0, 1.0), std::clamp((busy - own) / total, 0.0, 1.0)};
}

LoadWatch::LoadWatch() : begin_(ReadCpuTimes()), own_(OwnSeconds()) {}

std::optional<MachineLoad> LoadWatch::Read() const {
  const std::optional<CpuTimes> end = ReadCpuTimes();
  if (!begin_.has_value() || !end.has_value()) return std::nullopt;
  if (end->total - begin_->total < kFewestSeconds) return std::nullopt;
  return LoadBetween(*begin_, *end, OwnSeconds() - own_);
}

Json LoadJson(const std::optional<MachineLoad>& load) {
  Json json = {{"load_average", nullptr}, {"steal", nullptr}, {"others", nullptr}};
  std::array<double, 3> averages = {};
  if (getloadavg(averages.data(), 3) == 3) json["load_average"] = averages;
  if (load.has_value()) {
    json["steal"] = load->steal;
    json["others"] = load->others;
  }
  return json;
}

std::string WhyBusy(const std::optional<MachineLoad>& load, const Comparison* comparison) {
  std::vector<std::string> reasons;
  if (load.has_value() && load->steal > kMostSteal) {
    reasons.push_back(
        absl::StrFormat("its host took %.0f %% of the cores' time", 100 * load->steal));
  }
  if (load.has_value() && load->others > kMostOthers) {
    reasons.push_back(
        absl::StrFormat("other processes took %.0f %% of the cores' time", 100 * load->others));
  }
  if (comparison != nullptr && comparison->wall.ratio.has_value() &&
      comparison->verdict != Verdict::kTooFewPairs) {
    const Ratio& ratio = *comparison->wall.ratio;
    if (ratio.high > kMostSpread * ratio.low) {
      reasons.push_back(
          absl::StrFormat("the interval spans a factor of %.1f", ratio.high / ratio.low));
    }
  }
  return absl::StrJoin(reasons, "; ");
}

}  // namespace voxconv::measure
