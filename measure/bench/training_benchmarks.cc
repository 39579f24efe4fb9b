// SPDX-License-Identifier: Apache-2.0
// Whole training steps.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "voxconv/core/random.h"
#include "voxconv/measure/bench/benchmarks.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/measure/timer.h"
#include "voxconv/networks/executor.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"
#include "voxconv/training/recorded_step.h"
#include "voxconv/training/trainer.h"

namespace voxconv::bench {
namespace {

// How far a first loss may be from that in f32, relative to it. A wrong layer moves it by far more
// than rounding does, which is averaged over all rows.
double LossTolerance(Precision precision) { return precision == Precision::kF32 ? 1e-4 : 1e-2; }

class TrainingBenchmark {
 public:
  TrainingBenchmark(NetworkSpec spec, std::shared_ptr<NetworkScenario> scenario,
                    std::shared_ptr<GateFailures> failures)
      : spec_(std::move(spec)), scenario_(std::move(scenario)), failures_(std::move(failures)) {}

  void Run(benchmark::State& state) {
    std::unique_ptr<Trainer> trainer;
    absl::Status status = Prepare(trainer);
    std::vector<double> wall;
    int64_t waits = 0;
    for (auto _ : state) {
      double ms = 0;
      if (status.ok()) status = Step(*trainer, ms, waits).status();
      state.SetIterationTime(1e-3 * ms);
      if (!status.ok()) break;
      wall.push_back(ms);
    }
    if (!status.ok()) {
      recorded_.reset();
      state.SkipWithError(std::string(status.message()).c_str());
      return;
    }
    recorded_.reset();
    const TrainingMemory memory = trainer->memory();
    state.counters["voxels"] = static_cast<double>(scenario_->num_voxels());
    state.counters["median_ms"] = Median(wall);
    state.counters["synchronisations"] = static_cast<double>(waits);
    state.counters["activations_MiB"] = static_cast<double>(memory.activations >> 20);
    state.counters["maps_MiB"] = static_cast<double>(memory.maps >> 20);
    state.counters["parameters_MiB"] =
        static_cast<double>((memory.parameters + memory.optimizer) >> 20);
  }

 private:
  absl::StatusOr<std::unique_ptr<Trainer>> MakeTrainer(const measure::Configuration& configuration,
                                                       Precision precision) {
    VOXCONV_ASSIGN_OR_RETURN(NetworkGraph graph, MakeModel(spec_.network, {.grid = spec_.grid}));
    InitializeParameters(graph, /*seed=*/1);
    VOXCONV_ASSIGN_OR_RETURN(input_, scenario_->Input(graph.in_channels(), StorageOf(precision)));
    TrainingConfig config;
    config.run.planner = measure::MakePlanner(configuration);
    config.run.precision = precision;
    config.run.keep_maps = spec_.keep_maps || spec_.graph;
    config.optimizer.loss_scale = precision == Precision::kF16 ? 1024.0f : 1.0f;
    return Trainer::Create(std::move(graph), config, scenario_->registry(),
                           *scenario_->Context().backend);
  }

  // A random label for each row of the network's output.
  absl::Status MakeLabels(const measure::Configuration& configuration) {
    VOXCONV_ASSIGN_OR_RETURN(NetworkGraph graph, MakeModel(spec_.network, {.grid = spec_.grid}));
    InitializeParameters(graph, /*seed=*/1);
    VOXCONV_ASSIGN_OR_RETURN(const SparseTensor input,
                             scenario_->Input(graph.in_channels(), DType::kF32));
    const RunConfig config{.planner = measure::MakePlanner(configuration), .profile_stages = false};
    VOXCONV_ASSIGN_OR_RETURN(auto runner,
                             NetworkRunner::Create(std::move(graph), config, scenario_->registry(),
                                                   *scenario_->Context().backend));
    VOXCONV_ASSIGN_OR_RETURN(const RunResult result, runner->Run(input.view()));
    const Tensor& output = result.output.features();
    Random random(1);
    labels_.clear();
    for (int64_t i = 0; i < output.rows(); ++i) {
      labels_.push_back(static_cast<int32_t>(random.Below(output.channels())));
    }
    return absl::OkStatus();
  }

  // One step. It changes the parameters a little, so that work goes on as in training.
  absl::StatusOr<StepResult> Step(Trainer& trainer, double& ms, int64_t& waits) {
    constexpr double kRate = 1e-4;
    const int64_t before = scenario_->Context().backend->synchronisations();
    const measure::Timer timer;
    if (recorded_ != nullptr) {
      VOXCONV_RETURN_IF_ERROR(recorded_->Queue(labels_, kRate));
    } else {
      VOXCONV_RETURN_IF_ERROR(trainer.Queue(input_.view(), labels_, kRate));
      VOXCONV_RETURN_IF_ERROR(trainer.Announce(input_.view()));
    }
    VOXCONV_ASSIGN_OR_RETURN(const StepResult result, trainer.Finish());
    ms = timer.Milliseconds();
    waits = std::max(waits, scenario_->Context().backend->synchronisations() - before);
    return result;
  }

  // Holds the first loss against that of the trusted plugins in f32.
  absl::Status Prepare(std::unique_ptr<Trainer>& trainer) {
    VOXCONV_RETURN_IF_ERROR(scenario_->Prepare());
    VOXCONV_ASSIGN_OR_RETURN(const measure::Defaults defaults, measure::LoadDefaults());
    measure::Configuration trusted;
    trusted.choice = defaults.trusted;
    VOXCONV_RETURN_IF_ERROR(MakeLabels(trusted));
    double ms = 0, expected = 0;
    int64_t waits = 0;
    {
      VOXCONV_ASSIGN_OR_RETURN(const auto reference, MakeTrainer(trusted, Precision::kF32));
      VOXCONV_ASSIGN_OR_RETURN(const StepResult step, Step(*reference, ms, waits));
      expected = step.loss.loss;
    }
    VOXCONV_ASSIGN_OR_RETURN(trainer, MakeTrainer(spec_.configuration, spec_.precision));
    VOXCONV_ASSIGN_OR_RETURN(const StepResult first, Step(*trainer, ms, waits));
    if (!(std::abs(first.loss.loss - expected) <= LossTolerance(spec_.precision) * expected)) {
      ++failures_->count;
      return absl::InternalError(absl::StrCat("the first loss is ", first.loss.loss, "; that of ",
                                              defaults.trusted.dataflow, " in f32 is ", expected));
    }
    constexpr int kWarmup = 3;  // memory pools, libraries' choices, and the maps if they are kept
    for (int i = 0; i < kWarmup; ++i) {
      VOXCONV_RETURN_IF_ERROR(Step(*trainer, ms, waits).status());
    }
    return spec_.graph ? Record(*trainer) : absl::OkStatus();
  }

  // Not without a replay that gives what a step gives, bit by bit.
  absl::Status Record(Trainer& trainer) {
    double ms = 0;
    int64_t waits = 0;
    VOXCONV_ASSIGN_OR_RETURN(const Trainer::State before, trainer.Save());
    VOXCONV_ASSIGN_OR_RETURN(const StepResult expected, Step(trainer, ms, waits));
    VOXCONV_RETURN_IF_ERROR(trainer.Restore(before));
    VOXCONV_ASSIGN_OR_RETURN(recorded_, trainer.Record(input_.view()));
    VOXCONV_ASSIGN_OR_RETURN(const StepResult replayed, Step(trainer, ms, waits));
    if (replayed.loss.loss != expected.loss.loss ||
        replayed.gradient_norm != expected.gradient_norm) {
      ++failures_->count;
      return absl::InternalError(absl::StrCat("a replay's loss is ", replayed.loss.loss,
                                              " and the norm of its gradients ",
                                              replayed.gradient_norm, "; those of a step are ",
                                              expected.loss.loss, ", ", expected.gradient_norm));
    }
    return Step(trainer, ms, waits).status();
  }

  NetworkSpec spec_;
  std::shared_ptr<NetworkScenario> scenario_;
  std::shared_ptr<GateFailures> failures_;
  SparseTensor input_;
  std::vector<int32_t> labels_;
  std::unique_ptr<RecordedStep> recorded_;  // null until it is recorded; refers to the trainer
};

}  // namespace

void AddTrainingBenchmark(const NetworkSpec& spec, std::shared_ptr<NetworkScenario> scenario,
                          std::shared_ptr<GateFailures> failures) {
  const std::string name =
      absl::StrCat("training/", NetworkName(spec), "/", spec.name, "/", scenario->input(), "/",
                   ToString(spec.precision), "/maps=", spec.keep_maps ? "kept" : "rebuilt",
                   spec.graph ? "/graph" : "");
  auto body = std::make_shared<TrainingBenchmark>(spec, std::move(scenario), std::move(failures));
  benchmark::RegisterBenchmark(name.c_str(), [body](benchmark::State& state) { body->Run(state); })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace voxconv::bench
