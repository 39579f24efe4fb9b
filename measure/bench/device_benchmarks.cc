#include "measure/bench/device_benchmarks.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "core/tensor_ops.h"
#include "verify/convolve.h"
#include "verify/gate.h"
#include "verify/matrix.h"

namespace voxconv::bench {
namespace {

using Body = std::function<absl::StatusOr<DeviceTimes>(benchmark::State&)>;

// One iteration: DeviceScenario::Time repeats the work itself.
void AddBenchmark(const std::string& name, Body body) {
  benchmark::RegisterBenchmark(
      name.c_str(),
      [body = std::move(body)](benchmark::State& state) {
        for (auto _ : state) {
          const absl::StatusOr<DeviceTimes> times = body(state);
          if (!times.ok()) {
            state.SkipWithError(std::string(times.status().message()).c_str());
            return;
          }
          state.SetIterationTime(1e-6 * times->elapsed);
          state.counters["stages_us"] = times->stages;
        }
      })
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMicrosecond);
}

absl::StatusOr<DeviceTimes> TimeCopy(DeviceScenario& scenario, benchmark::State& state) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  VOXCONV_RETURN_IF_ERROR(scenario.Open());
  Backend& backend = scenario.backend();
  Stream& stream = backend.main_stream();
  VOXCONV_ASSIGN_OR_RETURN(const Buffer from, backend.Allocate(kBytes, stream));
  VOXCONV_ASSIGN_OR_RETURN(const Buffer to, backend.Allocate(kBytes, stream));
  VOXCONV_RETURN_IF_ERROR(backend.FillBytes(from.data(), 1, kBytes, stream));
  const MemorySpace space = backend.memory_space();
  VOXCONV_ASSIGN_OR_RETURN(DeviceTimes times, scenario.Time([&](const ExecutionContext&) {
    return backend.Copy(to.data(), space, from.data(), space, kBytes, stream);
  }));
  state.counters["GB/s"] = 1e-3 * 2 * static_cast<double>(kBytes) / times.elapsed;
  return times;
}

// A thousand launches, so that the time of one is not that of the events around it.
absl::StatusOr<DeviceTimes> TimeLaunch(DeviceScenario& scenario, benchmark::State& state) {
  constexpr int kLaunches = 1000;
  VOXCONV_RETURN_IF_ERROR(scenario.Open());
  Backend& backend = scenario.backend();
  Stream& stream = backend.main_stream();
  VOXCONV_ASSIGN_OR_RETURN(const Buffer word, backend.Allocate(4, stream));
  VOXCONV_ASSIGN_OR_RETURN(DeviceTimes times, scenario.Time([&](const ExecutionContext&) {
    for (int i = 0; i < kLaunches; ++i) {
      VOXCONV_RETURN_IF_ERROR(backend.FillBytes(word.data(), 0, 4, stream));
    }
    return absl::OkStatus();
  }));
  state.counters["launch_us"] = times.elapsed / kLaunches;
  VOXCONV_ASSIGN_OR_RETURN(const DeviceTimes one, scenario.Time([&](const ExecutionContext&) {
    return backend.FillBytes(word.data(), 0, 4, stream);
  }));
  state.counters["one_us"] = one.elapsed;
  return times;
}

absl::StatusOr<DeviceTimes> TimeGemm(DeviceScenario& scenario, DType dtype,
                                     benchmark::State& state) {
  constexpr int64_t kSize = 8192;
  VOXCONV_RETURN_IF_ERROR(scenario.Open());
  const ExecutionContext context = scenario.Context();
  VOXCONV_ASSIGN_OR_RETURN(const Tensor x, Tensor::FromHost(verify::Values(kSize * kSize, 1), kSize,
                                                            kSize, context, dtype));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor y, Tensor::Create(kSize, kSize, dtype, context));
  TensorOps& ops = context.backend->tensor_ops();
  VOXCONV_ASSIGN_OR_RETURN(DeviceTimes times, scenario.Time([&](const ExecutionContext& run) {
    return ops.Linear(x.view(), x.view(), nullptr, y.view(), run);
  }));
  state.counters["TFLOP/s"] = 1e-6 * 2 * kSize * kSize * kSize / times.elapsed;
  return times;
}

std::string LayoutName(const LayoutRequest& layout) {
  if (layout.layout != MapLayout::kMaskSorted) return std::string(ToString(layout.layout));
  return absl::StrCat("mask_sorted(", ToString(layout.mask_order), ")");
}

absl::StatusOr<DeviceTimes> TimeConv(DeviceScenario& scenario, const Dataflow& dataflow,
                                     const Channels& channels, DType dtype, GateFailures& failures,
                                     benchmark::State& state) {
  const Support support = dataflow.Supports({channels.in, channels.out, dtype}, BackendKind::kCuda);
  if (!support.ok) return absl::UnimplementedError(support.reason);
  VOXCONV_RETURN_IF_ERROR(scenario.Prepare());
  VOXCONV_ASSIGN_OR_RETURN(const DeviceScenario::Data* data, scenario.DataFor(channels, dtype));
  const ExecutionContext context = scenario.Context();
  const MapProblem problem = scenario.problem();
  VOXCONV_ASSIGN_OR_RETURN(const auto mapping, scenario.registry().mappings().Create("hash"));
  VOXCONV_ASSIGN_OR_RETURN(
      const KernelMap map,
      BuildKernelMap(*mapping, problem, dataflow.RequiredLayout(problem.geometry.num_offsets()),
                     context));
  Workspace workspace;
  const auto convolve = [&](const ExecutionContext& run) {
    return RunConvolution(dataflow, map, data->features.view(), data->weights.view(), workspace,
                          run);
  };
  {
    VOXCONV_ASSIGN_OR_RETURN(const Tensor output,
                             verify::ConvolveOntoNan(dataflow, map, data->features.view(),
                                                     data->weights.view(), workspace, context));
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values, output.ToHost(context));
    const auto same = verify::CompareOutputs(
        values, data->output,
        verify::DifferenceBound({}, verify::PrecisionOf(dataflow, dtype, BackendKind::kCuda),
                                map.num_offsets() * channels.in, /*same_operands=*/true),
        "f32");
    if (!same.ok()) {
      ++failures.count;
      return same.status();
    }
  }
  VOXCONV_ASSIGN_OR_RETURN(DeviceTimes times, scenario.Time([&](const ExecutionContext& run) {
    return convolve(run).status();
  }));
  const double flops = 2.0 * static_cast<double>(scenario.num_pairs()) *
                       static_cast<double>(channels.in * channels.out);
  const double bytes = static_cast<double>(
      problem.inputs.size() * channels.in * SizeOf(dtype) +
      problem.outputs.size() * (channels.out * SizeOf(dtype) + 4 * map.num_offsets()));
  state.counters["TFLOP/s"] = 1e-6 * flops / times.elapsed;
  state.counters["MB"] = 1e-6 * bytes;
  return times;
}

}  // namespace

void AddCeilingBenchmarks(const std::shared_ptr<DeviceScenario>& scenario,
                          const std::vector<DType>& dtypes) {
  AddBenchmark("copy/device", [=](benchmark::State& state) { return TimeCopy(*scenario, state); });
  AddBenchmark("launch/device",
               [=](benchmark::State& state) { return TimeLaunch(*scenario, state); });
  for (DType dtype : dtypes) {
    AddBenchmark(absl::StrCat("gemm/", ToString(dtype), "/device"),
                 [=](benchmark::State& state) { return TimeGemm(*scenario, dtype, state); });
  }
}

void AddDeviceMapBenchmark(const std::string& mapping, const LayoutRequest& layout,
                           const std::shared_ptr<DeviceScenario>& scenario,
                           const std::shared_ptr<GateFailures>& failures) {
  AddBenchmark(absl::StrCat("map/", mapping, "/", scenario->input(), "/K27/", LayoutName(layout)),
               [=](benchmark::State&) -> absl::StatusOr<DeviceTimes> {
                 VOXCONV_ASSIGN_OR_RETURN(const auto plugin,
                                          scenario->registry().mappings().Create(mapping));
                 VOXCONV_RETURN_IF_ERROR(scenario->Prepare());
                 const auto build = [&](const ExecutionContext& context) {
                   return BuildKernelMap(*plugin, scenario->problem(), layout, context);
                 };
                 VOXCONV_ASSIGN_OR_RETURN(const KernelMap map, build(scenario->Context()));
                 if (absl::Status same = scenario->CheckPairs(map); !same.ok()) {
                   ++failures->count;
                   return same;
                 }
                 return scenario->Time(
                     [&](const ExecutionContext& context) { return build(context).status(); });
               });
}

void AddDeviceStridedBenchmark(const std::string& mapping, const std::string& output_coords,
                               const std::shared_ptr<DeviceScenario>& scenario) {
  AddBenchmark(absl::StrCat("map/", mapping, "/", output_coords, "/", scenario->input(), "/K8s2"),
               [=](benchmark::State&) -> absl::StatusOr<DeviceTimes> {
                 const Registry& registry = scenario->registry();
                 VOXCONV_ASSIGN_OR_RETURN(const auto plugin, registry.mappings().Create(mapping));
                 VOXCONV_ASSIGN_OR_RETURN(const auto coords,
                                          registry.output_coords().Create(output_coords));
                 VOXCONV_ASSIGN_OR_RETURN(
                     const ConvGeometry geometry,
                     ConvGeometry::Create(
                         {.kind = ConvKind::kStrided, .kernel = {2, 2, 2}, .stride = {2, 2, 2}}));
                 VOXCONV_RETURN_IF_ERROR(scenario->Prepare());
                 const CoordinateSet& inputs = scenario->coordinates();
                 return scenario->Time([&](const ExecutionContext& context) -> absl::Status {
                   VOXCONV_ASSIGN_OR_RETURN(const CoordinateSetPtr outputs,
                                            coords->Compute(inputs, geometry, context));
                   return BuildKernelMap(*plugin, {inputs, *outputs, geometry},
                                         {.layout = MapLayout::kNeighbourTable}, context)
                       .status();
                 });
               });
}

void AddDeviceConvBenchmark(const std::string& dataflow, const Channels& channels, DType dtype,
                            const std::shared_ptr<DeviceScenario>& scenario,
                            const std::shared_ptr<GateFailures>& failures) {
  AddBenchmark(absl::StrCat("conv/", dataflow, "/", scenario->input(), "/", channels.name(), "/",
                            ToString(dtype)),
               [=](benchmark::State& state) -> absl::StatusOr<DeviceTimes> {
                 VOXCONV_ASSIGN_OR_RETURN(const auto plugin,
                                          scenario->registry().dataflows().Create(dataflow));
                 return TimeConv(*scenario, *plugin, channels, dtype, *failures, state);
               });
}

}  // namespace voxconv::bench
