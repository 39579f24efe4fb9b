// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/bench/run_benchmarks.h"

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "benchmark/benchmark.h"
#include "voxconv/measure/bench/benchmarks.h"

namespace voxconv::bench {
namespace {

// Hands all on to another reporter and keeps the first error of a benchmark.
class WatchingReporter : public benchmark::BenchmarkReporter {
 public:
  explicit WatchingReporter(std::unique_ptr<BenchmarkReporter> reporter)
      : reporter_(std::move(reporter)) {}

  // The library says how it was built itself, "as DEBUG" where it comes from Debian. That is no
  // word on voxconv, whose build is in the context.
  bool ReportContext(const Context& context) override {
    std::ostringstream said;
    reporter_->SetErrorStream(&said);
    const bool goes_on = reporter_->ReportContext(context);
    reporter_->SetErrorStream(&GetErrorStream());
    for (absl::string_view line : absl::StrSplit(said.str(), '\n', absl::SkipEmpty())) {
      if (!absl::StrContains(line, "Library was built as DEBUG")) GetErrorStream() << line << "\n";
    }
    return goes_on;
  }
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
    if (absl::StartsWith(message, kLeftOut)) return;
    if (errors_++ == 0) first_error_ = absl::StrCat(run.benchmark_name(), ": ", message);
  }

  std::unique_ptr<BenchmarkReporter> reporter_;
  int errors_ = 0;
  std::string first_error_;
};

}  // namespace

absl::Status RunBenchmarks() {
  std::unique_ptr<benchmark::BenchmarkReporter> shown(benchmark::CreateDefaultDisplayReporter());
  WatchingReporter display(std::move(shown));
  if (benchmark::RunSpecifiedBenchmarks(&display) == 0) {
    return absl::NotFoundError("no benchmark matches the filter");
  }
  if (display.errors() == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(display.errors(), " benchmarks ended with an error; ", display.first_error()));
}

}  // namespace voxconv::bench
