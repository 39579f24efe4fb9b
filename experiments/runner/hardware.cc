// SPDX-License-Identifier: Apache-2.0
#include "voxconv/experiments/runner/hardware.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/core/version.h"
#include "voxconv/experiments/runner/subprocess.h"
#if VOXCONV_HAVE_CUDA
#include "cuda_profiler_api.h"
#endif

namespace voxconv::experiment {
namespace {

using measure::Json;

constexpr const char* kHits = "lts__t_sectors_lookup_hit.sum";
constexpr const char* kMisses = "lts__t_sectors_lookup_miss.sum";
constexpr const char* kRead = "dram__bytes_read.sum";
constexpr const char* kWritten = "dram__bytes_write.sum";
constexpr const char* kTime = "gpu__time_duration.sum";
// Nsight Compute's compute throughput: the share of its peak at which the busiest unit of the
// multiprocessors works while the kernel runs, idle multiprocessors included.
constexpr const char* kUtilisation = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
constexpr std::array kMetrics = {kHits, kMisses, kRead, kWritten, kTime, kUtilisation};

// The cells of one CSV line; quotes within a quoted cell are doubled.
std::vector<std::string> SplitCsv(absl::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += '"';
      ++i;
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  return cells;
}

absl::Status NoKernels(absl::string_view text) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "==ERROR==")) {
      return absl::InvalidArgumentError(absl::StrCat("ncu: ", line));
    }
  }
  return absl::InvalidArgumentError("ncu reported no kernels");
}

}  // namespace

absl::StatusOr<std::string> FindNcu() {
  std::vector<std::string> folders;
  if (const char* path = std::getenv("PATH"); path != nullptr) folders = absl::StrSplit(path, ':');
  folders.emplace_back("/usr/local/cuda/bin");
  for (const std::string& folder : folders) {
    const std::filesystem::path file = std::filesystem::path(folder) / "ncu";
    std::error_code ignored;
    if (!folder.empty() && std::filesystem::is_regular_file(file, ignored)) return file.string();
  }
  return absl::NotFoundError(
      "counters: ncu is not installed; it is Nsight Compute, a part of the CUDA toolkit");
}

std::string ToString(const ProfiledSide& side) {
  return absl::StrCat(side.cell, ":", std::string(1, side.side), ":", side.experiment);
}

absl::StatusOr<ProfiledSide> ParseProfiledSide(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 2));
  uint64_t cell = 0;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &cell) ||
      (parts[1] != "a" && parts[1] != "b")) {
    return absl::InvalidArgumentError(
        absl::StrCat("profiled side '", text, "': allowed is CELL:a|b:EXPERIMENT"));
  }
  return ProfiledSide{cell, parts[1][0], parts[2]};
}

absl::Status RunForProfiler(const measure::RunOnce& once) {
#if VOXCONV_HAVE_CUDA
  VOXCONV_RETURN_IF_ERROR(once().status());
  if (cudaProfilerStart() != cudaSuccess) return absl::InternalError("cudaProfilerStart failed");
  const absl::Status status = once().status();
  if (cudaProfilerStop() != cudaSuccess) return absl::InternalError("cudaProfilerStop failed");
  return status;
#else
  (void)once;
  return absl::UnimplementedError("profiled side: this program was built without CUDA");
#endif
}

absl::StatusOr<Json> ParseNcuCsv(absl::string_view text) {
  std::map<std::string, double> sums;
  std::map<std::string, size_t> columns;
  int64_t kernels = 0;
  double percent_times_time = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> cells = SplitCsv(line);
    if (columns.empty()) {  // until the header
      if (!absl::StrContains(line, kHits)) continue;
      for (size_t i = 0; i < cells.size(); ++i) columns[cells[i]] = i;
      for (const char* metric : kMetrics) {
        if (!columns.contains(metric)) {
          return absl::InvalidArgumentError(absl::StrCat("ncu did not report ", metric));
        }
      }
      continue;
    }
    // The line of units has no number where the kernel's is.
    int64_t id = 0;
    if (cells.size() < columns.size() || !absl::SimpleAtoi(cells[0], &id)) continue;
    ++kernels;
    std::map<std::string, double> values;
    for (const char* metric : kMetrics) {
      double& value = values[metric];
      const std::string number = absl::StrReplaceAll(cells[columns[metric]], {{",", ""}});
      if (!absl::SimpleAtod(number, &value)) {
        return absl::InvalidArgumentError(
            absl::StrCat("ncu reported ", metric, " as '", cells[columns[metric]], "'"));
      }
      sums[metric] += value;
    }
    percent_times_time += values[kUtilisation] * values[kTime];
  }
  if (kernels == 0) return NoKernels(text);
  const double lookups = sums[kHits] + sums[kMisses];
  return Json{
      {"kernels", kernels},
      {"l2_hit", lookups > 0 ? Json(sums[kHits] / lookups) : Json()},
      {"dram_bytes", sums[kRead] + sums[kWritten]},
      {"utilisation", sums[kTime] > 0 ? Json(percent_times_time / sums[kTime] / 100) : Json()}};
}

absl::StatusOr<Json> ReadHardwareCounters(const std::string& ncu,
                                          const std::vector<std::string>& stages,
                                          const std::vector<std::string>& command) {
  std::vector<std::string> argv = {ncu,
                                   "--csv",
                                   "--page",
                                   "raw",
                                   "--print-units",
                                   "base",
                                   "--profile-from-start",
                                   "off",
                                   "--cache-control",  // as the stage before leaves the caches
                                   "none",
                                   "--metrics",
                                   absl::StrJoin(kMetrics, ",")};
  if (!stages.empty()) argv.emplace_back("--nvtx");
  for (const std::string& stage : stages) {
    argv.insert(argv.end(), {"--nvtx-include", absl::StrCat(stage, "/")});
  }
  argv.insert(argv.end(), command.begin(), command.end());
  VOXCONV_ASSIGN_OR_RETURN(const ProgramResult result, RunProgram(argv, /*capture=*/true));
  absl::StatusOr<Json> counters = ParseNcuCsv(result.output);
  if (counters.ok() || result.exit_status == 0) return counters;
  return absl::Status(
      counters.status().code(),
      absl::StrCat(counters.status().message(), " (exit status ", result.exit_status, ")"));
}

}  // namespace voxconv::experiment
