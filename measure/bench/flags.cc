#include "measure/bench/flags.h"

#include <regex.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "benchmark/benchmark.h"
#include "core/status_macros.h"

namespace voxconv::bench {
namespace {

using Strings = std::vector<std::string>;

absl::Status Refuse(absl::string_view name, absl::string_view value, absl::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat(name, " '", value, "': allowed ", allowed));
}

absl::Status CheckOneOf(absl::string_view name, const std::string& value, const Strings& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return absl::OkStatus();
  return Refuse(name, value, absl::StrCat("are ", absl::StrJoin(allowed, ", ")));
}

absl::Status CheckFilter(absl::string_view name, const std::string& value) {
  // A leading minus takes all others.
  const std::string expression(absl::StripPrefix(value, "-"));
  regex_t compiled;
  if (regcomp(&compiled, expression.c_str(), REG_EXTENDED | REG_NOSUB) != 0) {
    return Refuse(name, value, "is an extended regular expression");
  }
  regfree(&compiled);
  return absl::OkStatus();
}

absl::Status CheckValue(absl::string_view name, const std::string& value) {
  if (name == "--benchmark_filter") return CheckFilter(name, value);
  if (name == "--benchmark_format" || name == "--benchmark_out_format") {
    return CheckOneOf(name, value, {"console", "json", "csv"});
  }
  if (name == "--benchmark_time_unit") return CheckOneOf(name, value, {"ns", "us", "ms", "s"});
  constexpr int kMostRepetitions = 1000000;
  if (int count = 0; name == "--benchmark_repetitions" &&
                     (!absl::SimpleAtoi(value, &count) || count < 1 || count > kMostRepetitions)) {
    return Refuse(name, value, absl::StrCat("are 1 .. ", kMostRepetitions));
  }
  constexpr double kMostSeconds = 1e6;
  if (double seconds = 0;
      name == "--benchmark_min_time" &&
      (!absl::SimpleAtod(value, &seconds) || !(seconds > 0) || seconds > kMostSeconds)) {
    return Refuse(name, value, "are seconds above 0 up to 1e6, as in 0.2");
  }
  if (name == "--benchmark_out" && value.empty()) return Refuse(name, value, "is a file's path");
  return absl::OkStatus();
}

// Hands all on to another reporter and keeps the first error of a benchmark.
class WatchingReporter : public benchmark::BenchmarkReporter {
 public:
  explicit WatchingReporter(std::unique_ptr<BenchmarkReporter> reporter)
      : reporter_(std::move(reporter)) {}

  bool ReportContext(const Context& context) override { return reporter_->ReportContext(context); }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) Note(run);
    reporter_->ReportRuns(runs);
  }
  void Finalize() override { reporter_->Finalize(); }

  int errors() const { return errors_; }
  const std::string& first_error() const { return first_error_; }

 private:
  // Versions differ in how a run says that it failed.
  template <typename AnyRun>
  void Note(const AnyRun& run) {
    std::string message;
    if constexpr (requires { run.error_occurred; }) {
      if (!run.error_occurred) return;
      message = run.error_message;
    } else {
      if (static_cast<int>(run.skipped) == 0) return;
      message = run.skip_message;
    }
    if (errors_++ == 0) first_error_ = absl::StrCat(run.benchmark_name(), ": ", message);
  }

  std::unique_ptr<BenchmarkReporter> reporter_;
  int errors_ = 0;
  std::string first_error_;
};

std::unique_ptr<benchmark::BenchmarkReporter> MakeFileReporter(const std::string& format) {
  if (format == "json") return std::make_unique<benchmark::JSONReporter>();
  if (format == "console") {
    return std::make_unique<benchmark::ConsoleReporter>(benchmark::ConsoleReporter::OO_None);
  }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return std::make_unique<benchmark::CSVReporter>();
#pragma GCC diagnostic pop
}

absl::Status FileError(const std::string& path) {
  return absl::DataLossError(
      absl::StrCat("--benchmark_out ", path, ": cannot be written",
                   errno == 0 ? "" : absl::StrCat(": ", std::strerror(errno))));
}

}  // namespace

absl::StatusOr<Flags> ParseFlags(const Strings& flags) {
  Flags parsed;
  for (const std::string& flag : flags) {
    const size_t equals = std::min(flag.find('='), flag.size());
    const std::string name = flag.substr(0, equals);
    const std::string value = equals < flag.size() ? flag.substr(equals + 1) : "";
    VOXCONV_RETURN_IF_ERROR(CheckValue(name, value));
    if (name == "--benchmark_out") {
      parsed.out = value;
    } else if (name == "--benchmark_out_format") {
      parsed.out_format = value;
    } else {
      parsed.library.push_back(flag);
    }
  }
  // The library opens a file of its own, without which it takes no reporter for one.
  if (!parsed.out.empty()) parsed.library.emplace_back("--benchmark_out=/dev/null");
  return parsed;
}

absl::Status RunBenchmarks(const Flags& flags) {
  std::unique_ptr<benchmark::BenchmarkReporter> shown(benchmark::CreateDefaultDisplayReporter());
  WatchingReporter display(std::move(shown));
  std::ofstream file;
  std::unique_ptr<WatchingReporter> to_file;
  if (!flags.out.empty()) {
    errno = 0;
    file.open(flags.out);
    if (!file) return FileError(flags.out);
    std::unique_ptr<benchmark::BenchmarkReporter> inner = MakeFileReporter(flags.out_format);
    inner->SetOutputStream(&file);
    to_file = std::make_unique<WatchingReporter>(std::move(inner));
  }
  errno = 0;
  const size_t run = benchmark::RunSpecifiedBenchmarks(&display, to_file.get());
  if (run == 0) return absl::NotFoundError("no benchmark matches --benchmark_filter");
  if (to_file != nullptr) {
    file.close();
    if (!file) return FileError(flags.out);
  }
  if (display.errors() == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(display.errors(), " benchmarks ended with an error; ", display.first_error()));
}

}  // namespace voxconv::bench
