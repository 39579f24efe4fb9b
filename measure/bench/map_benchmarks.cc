// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "voxconv/measure/bench/benchmarks.h"
#include "voxconv/measure/timer.h"
#include "voxconv/verify/gate.h"

namespace voxconv::bench {
namespace {

// What an iteration is compared with runs after each of the first ones, not before all: both then
// meet the same clocks and the same load.
constexpr size_t kBaselineRuns = 5;

class MapBenchmark {
 public:
  MapBenchmark(std::string spec, Asked asked, std::shared_ptr<Scenario> scenario,
               std::shared_ptr<GateFailures> failures)
      : spec_(std::move(spec)),
        asked_(asked),
        scenario_(std::move(scenario)),
        failures_(std::move(failures)) {}

  void Run(benchmark::State& state) {
    if (!gate_.has_value()) gate_ = Gate();
    absl::Status status = *gate_;
    Profile profile;
    std::vector<double> seconds, baseline_seconds, serial_seconds;
    for (auto _ : state) {
      const measure::Timer timer;
      if (status.ok()) status = BuildAndQuery(scenario_->Context(&profile)).status();
      const double taken = timer.Seconds();
      state.SetIterationTime(taken);
      if (!status.ok()) break;
      seconds.push_back(taken);
      if (seconds.size() > kBaselineRuns) continue;
      const absl::StatusOr<double> baseline = scenario_->TimeBaseline();
      status = baseline.status();
      if (!status.ok()) break;
      baseline_seconds.push_back(*baseline);
      const measure::Timer serial_timer;
      status = BuildAndQuery(scenario_->SerialContext()).status();
      if (!status.ok()) break;
      serial_seconds.push_back(serial_timer.Seconds());
    }
    if (!status.ok()) {
      state.SkipWithError(SkipText(status, asked_).c_str());
      return;
    }
    const double iterations = static_cast<double>(state.iterations());
    state.counters["voxels"] = static_cast<double>(scenario_->problem().inputs.size());
    state.counters["pairs"] = static_cast<double>(scenario_->pairs().num_pairs());
    state.counters["index_ms"] = profile.Time(Stage::kIndexBuild) / iterations;
    state.counters["query_ms"] = profile.Time(Stage::kMapQuery) / iterations;
    state.counters["speedup_vs_std"] = Median(baseline_seconds) / Median(seconds);
    if (scenario_->threads() != 1) {
      state.counters["speedup_vs_1_thread"] = Median(serial_seconds) / Median(seconds);
    }
  }

 private:
  absl::StatusOr<KernelMap> BuildAndQuery(const ExecutionContext& context) const {
    const MapProblem problem = scenario_->problem();
    VOXCONV_ASSIGN_OR_RETURN(const auto index, mapping_->BuildIndex(problem.inputs, context));
    VOXCONV_ASSIGN_OR_RETURN(KernelMap map, mapping_->Query(*index, problem, context));
    VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
    return map;
  }

  absl::Status Gate() {
    VOXCONV_RETURN_IF_ERROR(scenario_->Prepare());
    const ExecutionContext context = scenario_->Context();
    VOXCONV_ASSIGN_OR_RETURN(
        mapping_, scenario_->registry().mappings().Create(spec_, context.backend->kind()));
    VOXCONV_RETURN_IF_ERROR(mapping_->Supports(scenario_->problem().geometry).ToStatus());
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap map, BuildAndQuery(context));
    const absl::Status same =
        verify::CompareMaps(map, scenario_->pairs(), context, scenario_->baseline_name());
    if (!same.ok()) ++failures_->count;
    return same;
  }

  std::string spec_;
  Asked asked_;
  std::shared_ptr<Scenario> scenario_;
  std::shared_ptr<GateFailures> failures_;
  std::unique_ptr<const Mapping> mapping_;
  std::optional<absl::Status> gate_;
};

}  // namespace

std::string SkipText(const absl::Status& status, Asked asked) {
  const bool refused = absl::IsUnimplemented(status) || absl::IsResourceExhausted(status);
  return absl::StrCat(refused && asked == Asked::kAsVariant ? kLeftOut : "", status.message());
}

void AddMapBenchmark(const std::string& mapping, Asked asked, std::shared_ptr<Scenario> scenario,
                     std::shared_ptr<GateFailures> failures) {
  const std::string name =
      absl::StrCat("map/", mapping, "/", scenario->input(), "/K27/", scenario->ThreadsName());
  auto body =
      std::make_shared<MapBenchmark>(mapping, asked, std::move(scenario), std::move(failures));
  benchmark::RegisterBenchmark(name.c_str(), [body](benchmark::State& state) { body->Run(state); })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace voxconv::bench
