#include "measure/bench/run_benchmarks.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"

namespace voxconv::bench {
namespace {

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
