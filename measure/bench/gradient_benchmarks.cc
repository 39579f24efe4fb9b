// SPDX-License-Identifier: Apache-2.0
// Gradients of one submanifold layer on a GPU.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/measure/bench/device_benchmarks.h"
#include "voxconv/verify/bounds.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::bench {
namespace {

// The tensors of a layer, and what a training step computes of them.
struct Layer {
  Tensor x, w, dy;
  Tensor y, dx, dw;

  static absl::StatusOr<Layer> Create(const DeviceScenario& scenario, const Channels& channels,
                                      Precision rounding, Precision stored) {
    const ExecutionContext context = scenario.Context();
    const int64_t rows = scenario.coordinates().size();
    const int64_t weight_rows = scenario.problem().geometry.num_offsets() * channels.in;
    const DType dtype = StorageOf(stored);
    const auto make = [&](int64_t n, int64_t c, int seed) -> absl::StatusOr<Tensor> {
      return Tensor::FromHost(verify::RoundedTo(rounding, verify::Values(n * c, seed)), n, c,
                              context, dtype);
    };
    Layer layer;
    VOXCONV_ASSIGN_OR_RETURN(layer.x, make(rows, channels.in, 1));
    VOXCONV_ASSIGN_OR_RETURN(layer.w, make(weight_rows, channels.out, 2));
    VOXCONV_ASSIGN_OR_RETURN(layer.dy, make(rows, channels.out, 3));
    VOXCONV_ASSIGN_OR_RETURN(layer.y, Tensor::Create(rows, channels.out, dtype, context));
    VOXCONV_ASSIGN_OR_RETURN(layer.dx, Tensor::Create(rows, channels.in, dtype, context));
    VOXCONV_ASSIGN_OR_RETURN(layer.dw, Tensor::Create(weight_rows, channels.out, dtype, context));
    return layer;
  }
};

// One pass of a layer, prepared and planned.
struct PlannedPass {
  Pass pass;
  std::shared_ptr<const PreparedMap> map;
  std::unique_ptr<DataflowPlan> plan;

  static absl::StatusOr<PlannedPass> Create(const Dataflow& dataflow, Pass pass,
                                            const ConvShape& shape, const KernelMap& map,
                                            const ExecutionContext& context) {
    PlannedPass planned{pass};
    VOXCONV_ASSIGN_OR_RETURN(planned.map, PrepareMap(dataflow, pass, shape, map, context));
    VOXCONV_ASSIGN_OR_RETURN(planned.plan, dataflow.Plan(pass, *planned.map, shape, context));
    return planned;
  }

  absl::Status Run(const Dataflow& dataflow, const Layer& layer, Workspace& workspace,
                   const ExecutionContext& context) const {
    VOXCONV_RETURN_IF_ERROR(workspace.Grant(plan->booking(), context));
    switch (pass) {
      case Pass::kForward:
        return dataflow.Forward(*plan, *map, {layer.x.view(), layer.w.view(), layer.y.view()},
                                workspace, context);
      case Pass::kInputGrad:
        return dataflow.InputGrad(*plan, *map, {layer.dy.view(), layer.w.view(), layer.dx.view()},
                                  workspace, context);
      case Pass::kWeightGrad:
        return dataflow.WeightGrad(*plan, *map, {layer.x.view(), layer.dy.view(), layer.dw.view()},
                                   workspace, context);
    }
    return absl::InternalError("unknown pass");
  }
};

class GradientBenchmark {
 public:
  GradientBenchmark(DeviceScenario& scenario, const Dataflow& dataflow, const Channels& channels,
                    Precision precision, GateFailures& failures)
      : scenario_(scenario),
        dataflow_(dataflow),
        channels_(channels),
        precision_(precision),
        failures_(failures) {}

  absl::StatusOr<DeviceTimes> Time(TimedPasses passes, benchmark::State& state) {
    VOXCONV_RETURN_IF_ERROR(scenario_.Prepare());
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap map, Map());
    VOXCONV_ASSIGN_OR_RETURN(const Layer layer,
                             Layer::Create(scenario_, channels_, precision_, precision_));
    const ExecutionContext context = scenario_.Context();
    Workspace workspace;
    std::vector<PlannedPass> planned;
    for (const Pass pass : PassesOf(passes)) {
      VOXCONV_ASSIGN_OR_RETURN(
          planned.emplace_back(),
          PlannedPass::Create(dataflow_, pass, Shape(precision_), map, context));
    }
    const auto run = [&](const ExecutionContext& of) -> absl::Status {
      for (const PlannedPass& pass : planned) {
        VOXCONV_RETURN_IF_ERROR(pass.Run(dataflow_, layer, workspace, of));
      }
      return absl::OkStatus();
    };
    VOXCONV_RETURN_IF_ERROR(run(context));
    if (absl::Status same = Compare(passes, layer, map); !same.ok()) {
      ++failures_.count;
      return same;
    }
    VOXCONV_ASSIGN_OR_RETURN(DeviceTimes times, scenario_.Time(run));
    const double flops = 2.0 * static_cast<double>(scenario_.num_pairs()) *
                         static_cast<double>(channels_.in * channels_.out * planned.size());
    state.counters["TFLOP/s"] = 1e-6 * flops / times.elapsed;
    return times;
  }

 private:
  static std::vector<Pass> PassesOf(TimedPasses passes) {
    switch (passes) {
      case TimedPasses::kInputGrad:
        return {Pass::kInputGrad};
      case TimedPasses::kWeightGrad:
        return {Pass::kWeightGrad};
      case TimedPasses::kAll:
        break;
    }
    return {Pass::kForward, Pass::kInputGrad, Pass::kWeightGrad};
  }

  ConvShape Shape(Precision precision) const { return scenario_.ShapeOf(channels_, precision); }

  absl::StatusOr<KernelMap> Map() const {
    VOXCONV_ASSIGN_OR_RETURN(const auto mapping,
                             scenario_.registry().mappings().Create(
                                 scenario_.defaults().trusted.mapping, scenario_.backend().kind()));
    return QueryKernelMap(*mapping, scenario_.problem(), scenario_.Context());
  }

  // Against the baseline dataflow in f32 on the same rounded operands.
  absl::Status Compare(TimedPasses passes, const Layer& layer, const KernelMap& map) const {
    const ExecutionContext context = scenario_.Context();
    VOXCONV_ASSIGN_OR_RETURN(const auto baseline, scenario_.registry().dataflows().Create(
                                                      scenario_.defaults().baseline_dataflow,
                                                      scenario_.backend().kind()));
    VOXCONV_ASSIGN_OR_RETURN(const Layer exact,
                             Layer::Create(scenario_, channels_, precision_, Precision::kF32));
    Workspace workspace;
    for (const Pass pass : PassesOf(passes)) {
      if (pass == Pass::kForward) continue;  // that of conv/
      VOXCONV_ASSIGN_OR_RETURN(
          const PlannedPass planned,
          PlannedPass::Create(*baseline, pass, Shape(Precision::kF32), map, context));
      VOXCONV_RETURN_IF_ERROR(planned.Run(*baseline, exact, workspace, context));
      const bool weights = pass == Pass::kWeightGrad;
      VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values,
                               (weights ? layer.dw : layer.dx).ToHost(context));
      VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> expected,
                               (weights ? exact.dw : exact.dx).ToHost(context));
      const int64_t terms =
          weights ? scenario_.coordinates().size() : Shape(precision_).num_offsets * channels_.out;
      const double bound =
          verify::DifferenceBound({}, verify::RunPrecisionOf(dataflow_, Shape(precision_)), terms,
                                  /*same_operands=*/true);
      const auto same = verify::CompareOutputs(values, expected, bound, "f32");
      if (!same.ok()) {
        return absl::InternalError(absl::StrCat(ToString(pass), ": ", same.status().message()));
      }
    }
    return absl::OkStatus();
  }

  DeviceScenario& scenario_;
  const Dataflow& dataflow_;
  Channels channels_;
  Precision precision_;
  GateFailures& failures_;
};

}  // namespace

absl::string_view ToString(TimedPasses passes) {
  switch (passes) {
    case TimedPasses::kInputGrad:
      return "input_grad";
    case TimedPasses::kWeightGrad:
      return "weight_grad";
    case TimedPasses::kAll:
      return "all";
  }
  return "?";
}

void AddDeviceGradientBenchmark(const std::string& dataflow, const Channels& channels,
                                Precision precision, TimedPasses passes,
                                const std::shared_ptr<DeviceScenario>& scenario,
                                const std::shared_ptr<GateFailures>& failures) {
  AddDeviceBenchmark(absl::StrCat("grad/", dataflow, "/", scenario->input(), "/", channels.name(),
                                  "/", voxconv::ToString(precision), "/", ToString(passes)),
                     [=](benchmark::State& state) -> absl::StatusOr<DeviceTimes> {
                       VOXCONV_RETURN_IF_ERROR(scenario->Open());
                       VOXCONV_ASSIGN_OR_RETURN(const auto plugin,
                                                scenario->registry().dataflows().Create(
                                                    dataflow, scenario->backend().kind()));
                       return GradientBenchmark(*scenario, *plugin, channels, precision, *failures)
                           .Time(passes, state);
                     });
}

}  // namespace voxconv::bench
