// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/measure/bench/benchmarks.h"
#include "voxconv/measure/timer.h"
#include "voxconv/verify/convolve.h"
#include "voxconv/verify/gate.h"

namespace voxconv::bench {
namespace {

double Flops(const Scenario& scenario, const Channels& channels) {
  return 2.0 * static_cast<double>(scenario.pairs().num_pairs()) *
         static_cast<double>(channels.in) * static_cast<double>(channels.out);
}

// [pairs, c_in] x [c_in, c_out]: what a dataflow would cost if its pairs lay ready in rows.
class DenseProduct {
 public:
  absl::Status Prepare(const Scenario& scenario, const Channels& channels) {
    const ExecutionContext context = scenario.Context();
    channels_ = channels;
    rows_ = scenario.pairs().num_pairs();
    VOXCONV_ASSIGN_OR_RETURN(a_, AllocateArray<float>(rows_ * channels.in, context));
    VOXCONV_ASSIGN_OR_RETURN(b_, AllocateArray<float>(channels.in * channels.out, context));
    VOXCONV_ASSIGN_OR_RETURN(c_, AllocateArray<float>(rows_ * channels.out, context));
    for (Array<float>* array : {&a_, &b_, &c_}) {
      for (int64_t i = 0; i < array->size(); ++i) array->data()[i] = 1e-3f * (1 + i % 17);
    }
    return absl::OkStatus();
  }
  // Seconds of one product.
  double Run(const ExecutionContext& context) {
    const measure::Timer timer;
    Sgemm(context, rows_, channels_.out, channels_.in, a_.data(), b_.data(),
          ProductMode::kOverwrite, c_.data());
    return timer.Seconds();
  }

 private:
  Channels channels_;
  int64_t rows_ = 0;
  Array<float> a_, b_, c_;
};

class ConvBenchmark {
 public:
  ConvBenchmark(std::string spec, Asked asked, const Channels& channels, Precision precision,
                std::shared_ptr<Scenario> scenario, std::shared_ptr<GateFailures> failures)
      : spec_(std::move(spec)),
        asked_(asked),
        channels_(channels),
        precision_(precision),
        scenario_(std::move(scenario)),
        failures_(std::move(failures)) {}

  void Run(benchmark::State& state) {
    if (!gate_.has_value()) gate_ = Gate();
    absl::Status status = *gate_;
    DenseProduct dense;
    if (status.ok()) status = Prepare(dense);
    std::vector<double> seconds, dense_seconds;
    for (auto _ : state) {
      const measure::Timer timer;
      if (status.ok()) status = Convolve().status();
      const double taken = timer.Seconds();
      state.SetIterationTime(taken);
      if (!status.ok()) break;
      seconds.push_back(taken);
      dense_seconds.push_back(dense.Run(scenario_->Context()));
    }
    map_ = nullptr;  // the next benchmark needs the memory
    prepared_weights_ = nullptr;
    if (!status.ok()) {
      state.SkipWithError(SkipText(status, asked_).c_str());
      return;
    }
    const double gflops = 1e-9 * Flops(*scenario_, channels_);
    state.counters["GFLOP/s"] = gflops / Median(seconds);
    state.counters["sgemm_GFLOP/s"] = gflops / Median(dense_seconds);
    state.counters["of_sgemm"] = Median(dense_seconds) / Median(seconds);
    state.SetLabel(kernel_);
  }

 private:
  absl::Status Prepare(DenseProduct& dense) {
    const ExecutionContext context = scenario_->Context();
    VOXCONV_ASSIGN_OR_RETURN(
        map_, PrepareMap(*dataflow_, Pass::kForward, scenario_->ShapeOf(channels_, precision_),
                         scenario_->pairs(), context));
    VOXCONV_ASSIGN_OR_RETURN(const Scenario::Data* data, scenario_->DataFor(channels_, precision_));
    VOXCONV_ASSIGN_OR_RETURN(prepared_weights_,
                             dataflow_->PrepareWeights(scenario_->ShapeOf(channels_, precision_),
                                                       data->weights.view(), context));
    VOXCONV_RETURN_IF_ERROR(dense.Prepare(*scenario_, channels_));
    dense.Run(context);
    return absl::OkStatus();
  }

  absl::StatusOr<Tensor> Convolve() {
    VOXCONV_ASSIGN_OR_RETURN(const Scenario::Data* data, scenario_->DataFor(channels_, precision_));
    const ExecutionContext context = scenario_->Context();
    VOXCONV_ASSIGN_OR_RETURN(
        const auto plan,
        dataflow_->Plan(Pass::kForward, *map_, scenario_->ShapeOf(channels_, precision_), context));
    kernel_ = plan->kernel();
    return RunPlannedConvolution(*dataflow_, *plan, *map_, data->features.view(),
                                 data->weights.view(), workspace_, context, /*epilogue=*/{},
                                 /*settled=*/false, prepared_weights_.get());
  }

  absl::StatusOr<std::vector<float>> OutputOf(const Dataflow& dataflow,
                                              const Scenario::Data& data) {
    const ExecutionContext context = scenario_->Context();
    VOXCONV_ASSIGN_OR_RETURN(
        const Tensor output,
        verify::ConvolveOntoNan(dataflow, scenario_->pairs(), data.features.view(),
                                data.weights.view(), precision_, workspace_, context));
    return output.ToHost(context);
  }

  absl::Status Gate() {
    VOXCONV_RETURN_IF_ERROR(scenario_->Prepare());
    const ExecutionContext context = scenario_->Context();
    VOXCONV_ASSIGN_OR_RETURN(
        dataflow_, scenario_->registry().dataflows().Create(spec_, context.backend->kind()));
    VOXCONV_RETURN_IF_ERROR(
        dataflow_->Supports(Pass::kForward, scenario_->ShapeOf(channels_, precision_)).ToStatus());
    VOXCONV_ASSIGN_OR_RETURN(Scenario::Data * data, scenario_->DataFor(channels_, precision_));
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> features, OutputOf(*dataflow_, *data));
    const ConvShape shape = scenario_->ShapeOf(channels_, precision_);
    const auto same = verify::CompareOutputs(
        features, data->output,
        verify::DifferenceBound({}, verify::RunPrecisionOf(*dataflow_, shape),
                                shape.num_offsets * shape.c_in,
                                /*same_operands=*/true),
        scenario_->baseline_dataflow());
    if (!same.ok()) ++failures_->count;
    return same.status();
  }

  std::string spec_;
  Asked asked_;
  Channels channels_;
  Precision precision_;
  std::shared_ptr<Scenario> scenario_;
  std::shared_ptr<GateFailures> failures_;
  std::unique_ptr<const Dataflow> dataflow_;
  std::shared_ptr<const PreparedMap> map_;
  std::unique_ptr<const PreparedWeights> prepared_weights_;  // once, as networks do
  std::string kernel_;
  Workspace workspace_;
  std::optional<absl::Status> gate_;
};

void RunSgemm(Scenario& scenario, const Channels& channels, benchmark::State& state) {
  DenseProduct dense;
  absl::Status status = scenario.Prepare();
  if (status.ok()) status = dense.Prepare(scenario, channels);
  if (!status.ok()) {
    state.SkipWithError(std::string(status.message()).c_str());
    return;
  }
  std::vector<double> seconds;
  for (auto _ : state) {
    const double taken = dense.Run(scenario.Context());
    state.SetIterationTime(taken);
    seconds.push_back(taken);
  }
  state.counters["GFLOP/s"] = 1e-9 * Flops(scenario, channels) / Median(seconds);
}

}  // namespace

void AddConvBenchmark(const std::string& dataflow, Asked asked, const Channels& channels,
                      Precision precision, std::shared_ptr<Scenario> scenario,
                      std::shared_ptr<GateFailures> failures) {
  const std::string name =
      absl::StrCat("conv/", dataflow, "/", scenario->input(), "/", channels.name(), "/",
                   precision == Precision::kF32 ? "" : absl::StrCat(ToString(precision), "/"),
                   scenario->ThreadsName());
  auto body = std::make_shared<ConvBenchmark>(dataflow, asked, channels, precision,
                                              std::move(scenario), std::move(failures));
  benchmark::RegisterBenchmark(name.c_str(), [body](benchmark::State& state) { body->Run(state); })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

void AddSgemmBenchmark(const Channels& channels, const std::shared_ptr<Scenario>& scenario) {
  const std::string name =
      absl::StrCat("sgemm/", scenario->input(), "/", channels.name(), "/", scenario->ThreadsName());
  benchmark::RegisterBenchmark(
      name.c_str(),
      [scenario, channels](benchmark::State& state) { RunSgemm(*scenario, channels, state); })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace voxconv::bench
