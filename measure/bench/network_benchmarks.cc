// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "voxconv/builtin/backends.h"
#include "voxconv/core/parse.h"
#include "voxconv/io/voxelize.h"
#include "voxconv/measure/bench/benchmarks.h"
#include "voxconv/measure/bench/frames_in_flight.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/measure/network_frame.h"
#include "voxconv/measure/preset.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/network_bound.h"

namespace voxconv::bench {
namespace {

class NetworkBenchmark {
 public:
  NetworkBenchmark(NetworkSpec spec, std::shared_ptr<NetworkScenario> scenario,
                   std::shared_ptr<GateFailures> failures)
      : spec_(std::move(spec)), scenario_(std::move(scenario)), failures_(std::move(failures)) {}

  void Run(benchmark::State& state) {
    if (!gate_.has_value()) gate_ = Gate();
    if (spec_.in_flight > 1) return RunInFlight(state);
    std::unique_ptr<NetworkRunner> runner;
    std::unique_ptr<RecordedFrame> recorded;
    absl::Status status = *gate_;
    if (status.ok()) status = Prepare(runner);
    if (status.ok() && spec_.graph) status = Record(*runner, recorded);
    std::vector<double> wall, queued;
    RunResult result;
    int64_t synchronisations = 0;
    for (auto _ : state) {
      measure::FrameTime time;
      if (status.ok()) status = scenario_->PrepareCache();
      if (status.ok()) {
        status = spec_.graph ? Replay(*recorded, time) : Frame(*runner, result, time);
      }
      state.SetIterationTime(1e-3 * time.wall_ms);
      if (!status.ok()) break;
      wall.push_back(time.wall_ms);
      queued.push_back(time.queued_ms);
      synchronisations = std::max(synchronisations, time.synchronisations);
    }
    if (!status.ok()) {
      state.SkipWithError(std::string(status.message()).c_str());
      return;
    }
    state.SetLabel(DescribeChannels(scenario_->cloud(), runner->graph().in_channels()));
    state.counters["voxels"] = static_cast<double>(scenario_->num_voxels());
    state.counters["median_ms"] = Median(wall);
    state.counters["queued_ms"] = Median(queued);
    state.counters["synchronisations"] = static_cast<double>(synchronisations);
  }

 private:
  void RunInFlight(benchmark::State& state) {
    constexpr int kFrames = 10;  // of a lane in an iteration: starting threads takes little beside
    absl::StatusOr<FramesInFlight> frames =
        gate_->ok() ? PrepareInFlight() : absl::StatusOr<FramesInFlight>(*gate_);
    absl::Status status = frames.status();
    std::vector<double> wall;
    for (auto _ : state) {
      double milliseconds = 0;
      if (status.ok()) {
        const absl::StatusOr<double> time = frames->Run(kFrames);
        status = time.status();
        milliseconds = time.value_or(0) / kFrames;
      }
      state.SetIterationTime(1e-3 * milliseconds);
      if (!status.ok()) break;
      wall.push_back(milliseconds);
    }
    if (!status.ok()) {
      state.SkipWithError(std::string(status.message()).c_str());
      return;
    }
    state.counters["voxels"] = static_cast<double>(scenario_->num_voxels());
    state.counters["median_ms"] = Median(wall);
    state.counters["frames_per_second"] = 1e3 * spec_.in_flight / Median(wall);
  }

  // Not without lanes that give what one frame alone gives.
  absl::StatusOr<FramesInFlight> PrepareInFlight() {
    VOXCONV_ASSIGN_OR_RETURN(
        FramesInFlight frames,
        FramesInFlight::Create(spec_.in_flight, [this]() -> absl::StatusOr<FramesInFlight::Lane> {
          FramesInFlight::Lane lane;
          VOXCONV_ASSIGN_OR_RETURN(lane.backend, scenario_->NewBackend());
          VOXCONV_ASSIGN_OR_RETURN(lane.runner,
                                   MakeRunner(spec_.configuration, spec_.precision, *lane.backend));
          VOXCONV_ASSIGN_OR_RETURN(
              lane.input, MakeSparseTensor(scenario_->cloud(), lane.runner->graph().in_channels(),
                                           lane.Context(), StorageOf(spec_.precision)));
          return lane;
        }));
    constexpr int kWarmup = 3;
    VOXCONV_RETURN_IF_ERROR(frames.Run(kWarmup).status());
    for (const FramesInFlight::Lane& lane : frames.lanes()) {
      VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> output,
                               lane.result.output.features().ToHost(lane.Context()));
      VOXCONV_RETURN_IF_ERROR(verify::CompareOutputs(output, scenario_->expected()[spec_.network],
                                                     bound_, "a frame alone, in f32")
                                  .status());
    }
    return frames;
  }

  absl::StatusOr<std::unique_ptr<NetworkRunner>> MakeRunner(
      const measure::Configuration& configuration, Precision precision, Backend& backend) {
    VOXCONV_ASSIGN_OR_RETURN(NetworkGraph graph, MakeModel(spec_.network, {.grid = spec_.grid}));
    InitializeParameters(graph, /*seed=*/1);
    bound_ = verify::NetworkBound(graph, precision, Precision::kF32);
    const RunConfig config{.planner = measure::MakePlanner(configuration),
                           .precision = precision,
                           .fold_batch_norm = true,
                           .keep_maps = spec_.keep_maps,
                           .parallel_maps = spec_.parallel_maps,
                           .profile_stages = false};
    VOXCONV_ASSIGN_OR_RETURN(auto runner, NetworkRunner::Create(std::move(graph), config,
                                                                scenario_->registry(), backend));
    return runner;
  }
  // On the scenario's backend, with input_.
  absl::StatusOr<std::unique_ptr<NetworkRunner>> MakeRunner(
      const measure::Configuration& configuration, Precision precision) {
    VOXCONV_ASSIGN_OR_RETURN(auto runner,
                             MakeRunner(configuration, precision, *scenario_->Context().backend));
    VOXCONV_ASSIGN_OR_RETURN(input_,
                             scenario_->Input(runner->graph().in_channels(), StorageOf(precision)));
    return runner;
  }

  absl::Status Frame(NetworkRunner& runner, RunResult& result, measure::FrameTime& time) {
    VOXCONV_ASSIGN_OR_RETURN(
        time, measure::TimeFrame(runner, input_.view(), scenario_->Context(), result));
    return absl::OkStatus();
  }

  absl::Status Replay(RecordedFrame& recorded, measure::FrameTime& time) {
    VOXCONV_ASSIGN_OR_RETURN(time, measure::TimeReplay(recorded, scenario_->Context()));
    return absl::OkStatus();
  }

  // Not without a replay that gives what a run gives.
  absl::Status Record(NetworkRunner& runner, std::unique_ptr<RecordedFrame>& recorded) {
    VOXCONV_ASSIGN_OR_RETURN(recorded, runner.Record(input_.view()));
    RunResult result;
    measure::FrameTime time;
    VOXCONV_RETURN_IF_ERROR(Frame(runner, result, time));
    VOXCONV_RETURN_IF_ERROR(Replay(*recorded, time));
    return measure::CheckReplay(runner, recorded->result().output.features(),
                                result.output.features(), scenario_->Context());
  }

  absl::Status Prepare(std::unique_ptr<NetworkRunner>& runner) {
    VOXCONV_ASSIGN_OR_RETURN(runner, MakeRunner(spec_.configuration, spec_.precision));
    // Memory pools, libraries' choices, and the maps if they are kept.
    constexpr int kWarmup = 3;
    RunResult result;
    measure::FrameTime time;
    for (int i = 0; i < kWarmup; ++i) VOXCONV_RETURN_IF_ERROR(Frame(*runner, result, time));
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<float>> Output(const measure::Configuration& configuration,
                                            Precision precision) {
    VOXCONV_ASSIGN_OR_RETURN(auto runner, MakeRunner(configuration, precision));
    RunResult result;
    measure::FrameTime time;
    VOXCONV_RETURN_IF_ERROR(Frame(*runner, result, time));
    return result.output.features().ToHost(scenario_->Context());
  }

  // Against the trusted plugins in f32.
  absl::Status Gate() {
    VOXCONV_RETURN_IF_ERROR(scenario_->Prepare());
    VOXCONV_ASSIGN_OR_RETURN(const measure::Defaults defaults, measure::LoadDefaults());
    std::vector<float>& expected = scenario_->expected()[spec_.network];
    if (expected.empty()) {
      measure::Configuration baseline;
      baseline.choice = defaults.trusted;
      VOXCONV_ASSIGN_OR_RETURN(expected, Output(baseline, Precision::kF32));
    }
    VOXCONV_ASSIGN_OR_RETURN(const auto output, Output(spec_.configuration, spec_.precision));
    const auto same = verify::CompareOutputs(output, expected, bound_,
                                             absl::StrCat(defaults.trusted.dataflow, " in f32"));
    if (!same.ok()) ++failures_->count;
    return same.status();
  }

  NetworkSpec spec_;
  std::shared_ptr<NetworkScenario> scenario_;
  std::shared_ptr<GateFailures> failures_;
  SparseTensor input_;
  double bound_ = 0;
  std::optional<absl::Status> gate_;
};

}  // namespace

absl::Status NetworkScenario::Prepare() {
  if (!prepared_.has_value()) prepared_ = Load();
  return *prepared_;
}

absl::Status NetworkScenario::Load() {
  VOXCONV_ASSIGN_OR_RETURN(backend_, MakeBackend(choice_));
  VOXCONV_ASSIGN_OR_RETURN(cache_, measure::CacheUse::Create(cache_options_, Context()));
  VOXCONV_ASSIGN_OR_RETURN(cloud_, LoadInputAsAsked(input_, load_));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Backend>> NetworkScenario::NewBackend() const {
  return MakeBackend(choice_);
}

absl::StatusOr<SparseTensor> NetworkScenario::Input(int64_t channels, DType dtype) const {
  return MakeSparseTensor(cloud_, channels, Context(), dtype);
}

std::string NetworkName(const NetworkSpec& spec) {
  return spec.grid.has_value() ? absl::StrCat(spec.network, "/grid=", BoxText(spec.grid))
                               : spec.network;
}

void AddNetworkBenchmark(const NetworkSpec& spec, std::shared_ptr<NetworkScenario> scenario,
                         std::shared_ptr<GateFailures> failures) {
  const std::string name =
      absl::StrCat("network/", NetworkName(spec), "/", spec.name, "/", scenario->input(), "/",
                   ToString(spec.precision), "/maps=", spec.keep_maps ? "kept" : "rebuilt",
                   spec.graph ? "/graph" : "",
                   spec.in_flight > 1 ? absl::StrCat("/in_flight=", spec.in_flight) : "");
  auto body = std::make_shared<NetworkBenchmark>(spec, std::move(scenario), std::move(failures));
  benchmark::RegisterBenchmark(name.c_str(), [body](benchmark::State& state) { body->Run(state); })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace voxconv::bench
