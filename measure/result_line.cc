// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/result_line.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/core/file_hash.h"
#include "voxconv/core/fnv.h"
#include "voxconv/core/plugin_api.h"
#include "voxconv/core/plugin_loader.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/measure/build_info.h"
#include "voxconv/measure/nvml.h"
#include "voxconv/measure/product_rate.h"

namespace voxconv::measure {
namespace {

Json FirstLine(const char* path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return nullptr;
  return line;
}

// The fastest core's clock at this moment, in MHz.
Json CpuClock() {
  std::ifstream file("/proc/cpuinfo");
  double fastest = 0;
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, "cpu MHz")) continue;
    double mhz = 0;
    if (absl::SimpleAtod(line.substr(line.find(':') + 1), &mhz)) fastest = std::max(fastest, mhz);
  }
  if (fastest == 0) return nullptr;
  return fastest;
}

Json Machine() {
  utsname name{};
  if (uname(&name) != 0) return nullptr;
  return absl::StrCat(name.nodename, ", ", name.sysname, " ", name.release, " ", name.machine);
}

// Of the GPU.
Json Driver(BackendKind backend) {
  if (backend != BackendKind::kCuda || !Nvml().ok()) return nullptr;
  const absl::StatusOr<std::string> version = DriverVersion(*Nvml());
  return version.ok() ? Json(*version) : Json();
}

Json DescribeSide(const Comparison& comparison, const std::vector<Measurement>& runs,
                  Summary TimeComparison::*side, const Counters& counters) {
  Json stages = Json::object();
  for (int i = 0; i < kNumStages; ++i) {
    if (runs.front().profile.visits[i] == 0) continue;
    stages[std::string(ToString(static_cast<Stage>(i)))] = ToJson(comparison.stages[i].*side);
  }
  Json samples = Json::array();
  for (const Measurement& run : runs) samples.push_back(run.wall_ms);
  return {{"wall_ms", ToJson(comparison.wall.*side)},
          {"stages_ms", std::move(stages)},
          {"wall_ms_samples", std::move(samples)},
          {"counters", ToJson(counters)}};
}

absl::StatusOr<int> OpenForAppending(const std::string& path) {
  // A pipe without a reader is refused; to open it would wait for one. With a reader, writing
  // waits.
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (file >= 0 && fcntl(file, F_SETFL, O_APPEND) == 0) return file;
  return absl::InvalidArgumentError(
      absl::StrCat("cannot open ", path, " for writing: ", std::strerror(errno)));
}

// Whether a program was cut short within the file's last line. What is no file on a disk has none.
bool EndsWithinLine(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream file(path, std::ios::binary);
  char last = '\n';
  return file.seekg(-1, std::ios::end) && file.get(last) && last != '\n';
}

}  // namespace

const std::string& ProgramHash() {
  static const auto* hash = new std::string(HashFile("/proc/self/exe").value_or(""));
  return *hash;
}

std::string CompiledFor(absl::string_view spec) {
  if (const auto library = LibraryOf(spec); library.has_value()) return library->compiled_for;
  return absl::StrCat(VOXCONV_COMPILED_FOR, ", inner loops ", SgemmTarget());
}

Json PluginHashes() {
  std::vector<std::string> hashes;
  for (const LoadedPlugin& plugin : LoadedPlugins()) hashes.push_back(plugin.hash);
  std::sort(hashes.begin(), hashes.end());
  return hashes;
}

Json DescribePlugins() {
  Json plugins = Json::array();
  for (const LoadedPlugin& plugin : LoadedPlugins()) {
    plugins.push_back({{"name", plugin.name},
                       {"path", plugin.path},
                       {"hash", plugin.hash},
                       {"compiled_for", plugin.compiled_for}});
  }
  return plugins;
}

Json DescribeProvenance(const Backend& backend, const std::optional<MachineLoad>& load,
                        const GpuWatch* gpu) {
  const BuildInfo build = GetBuildInfo();
  return {{"commit", build.commit},
          {"dirty", build.dirty},
          {"program", ProgramHash().empty() ? Json() : Json(ProgramHash())},
          {"plugins", DescribePlugins()},
          {"compiler", build.compiler},
          {"build_type", build.build_type},
          {"machine", Machine()},
          {"backend", std::string(ToString(backend.kind()))},
          {"device", backend.DeviceName()},
          {"driver", Driver(backend.kind())},
          {"gpu", gpu == nullptr ? Json() : gpu->ToJson()},
          {"cpu_governor", FirstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")},
          {"cpu_clock_mhz", CpuClock()},
          {"product", ProductJson(backend.kind())},
          {"load", LoadJson(load)},
          {"time_utc", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone())}};
}

std::string HashInput(absl::Span<const Coordinate> coordinates, absl::Span<const float> features) {
  Fnv1a hash;
  for (const Coordinate& c : coordinates) {
    for (int32_t value : {c.b, c.x, c.y, c.z}) hash.AddWord(static_cast<uint32_t>(value));
  }
  for (float value : features) hash.AddWord(std::bit_cast<uint32_t>(value));
  return absl::StrCat(absl::Hex(hash.value(), absl::kZeroPad16));
}

Json ToJson(const Counters& c) {
  return {{"queries", c.queries},
          {"true_pairs", c.true_pairs},
          {"padded_pairs", c.padded_pairs},
          {"bytes_read", c.bytes_read},
          {"bytes_written", c.bytes_written},
          {"launches", c.launches},
          {"index_bytes", c.index_bytes},
          {"peak_workspace", c.peak_workspace}};
}

Json ToJson(const Summary& summary) {
  return {{"median", summary.median}, {"p10", summary.p10}, {"p90", summary.p90}};
}

Json ToJson(const Ratio& ratio) {
  return {{"ratio", ratio.value}, {"low", ratio.low}, {"high", ratio.high}};
}

Json ToJson(const Comparison& comparison, const PairedSamples& samples) {
  Json stage_speedups = Json::object();
  for (int i = 0; i < kNumStages; ++i) {
    const std::optional<Ratio>& ratio = comparison.stages[i].ratio;
    if (!ratio.has_value()) continue;
    stage_speedups[std::string(ToString(static_cast<Stage>(i)))] = ToJson(*ratio);
  }
  Json line = {{"pairs", comparison.pairs},
               {"stopped", comparison.stopped},
               {"verdict", std::string(ToString(comparison.verdict))},
               {"speedup", nullptr},
               {"stage_speedups", std::move(stage_speedups)}};
  if (comparison.wall.ratio.has_value()) line["speedup"] = ToJson(*comparison.wall.ratio);
  line["a"] = DescribeSide(comparison, samples.a, &TimeComparison::a, comparison.counters_a);
  line["b"] = DescribeSide(comparison, samples.b, &TimeComparison::b, comparison.counters_b);
  return line;
}

absl::Status CheckWritable(const std::string& path) {
  VOXCONV_ASSIGN_OR_RETURN(const int file, OpenForAppending(path));
  close(file);
  return absl::OkStatus();
}

absl::Status AppendLine(const std::string& path, const Json& line) {
  VOXCONV_ASSIGN_OR_RETURN(const int file, OpenForAppending(path));
  // Until it is closed: what another program is just writing is no unfinished line. A file system
  // without locks leaves it at the one write.
  (void)flock(file, LOCK_EX);
  // A file name may hold bytes that are no UTF-8; they become U+FFFD instead of an exception.
  const std::string text =
      absl::StrCat(EndsWithinLine(path) ? "\n" : "",
                   line.dump(-1, ' ', false, Json::error_handler_t::replace), "\n");
  const ssize_t written = write(file, text.data(), text.size());
  const int write_error = errno;
  const int closed = close(file);
  if (written < 0 || closed != 0) {
    return absl::DataLossError(absl::StrCat("cannot write to ", path, ": ",
                                            std::strerror(written < 0 ? write_error : errno)));
  }
  if (static_cast<size_t>(written) != text.size()) {
    return absl::DataLossError(
        absl::StrCat(path, ": only ", written, " of ", text.size(), " bytes were written"));
  }
  return absl::OkStatus();
}

}  // namespace voxconv::measure
