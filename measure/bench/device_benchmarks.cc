// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/bench/device_benchmarks.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/core/voxel_ops.h"
#include "voxconv/verify/convolve.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::bench {
namespace {

absl::StatusOr<DeviceTimes> TimeCopy(DeviceScenario& scenario, benchmark::State& state) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  VOXCONV_RETURN_IF_ERROR(scenario.Open());
  Backend& backend = scenario.backend();
  Stream& stream = backend.main_stream();
  VOXCONV_ASSIGN_OR_RETURN(const Buffer from, backend.Allocate(kBytes, stream));
  VOXCONV_ASSIGN_OR_RETURN(const Buffer to, backend.Allocate(kBytes, stream));
  VOXCONV_RETURN_IF_ERROR(backend.FillBytes(from.data(), 1, kBytes, stream));
  const MemorySpace space = backend.device().space;
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

absl::StatusOr<DeviceTimes> TimeGemm(DeviceScenario& scenario, Precision precision,
                                     benchmark::State& state) {
  constexpr int64_t kSize = 8192;
  VOXCONV_RETURN_IF_ERROR(scenario.Open());
  const ExecutionContext context = scenario.Context();
  const DType dtype = StorageOf(precision);
  VOXCONV_ASSIGN_OR_RETURN(const Tensor x, Tensor::FromHost(verify::Values(kSize * kSize, 1), kSize,
                                                            kSize, context, dtype));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor y, Tensor::Create(kSize, kSize, dtype, context));
  TensorOps& ops = context.backend->tensor_ops();
  VOXCONV_ASSIGN_OR_RETURN(DeviceTimes times, scenario.Time([&](const ExecutionContext& run) {
    return ops.Linear(x.view(), x.view(), nullptr, precision, y.view(), run);
  }));
  state.counters["TFLOP/s"] = 1e-6 * 2 * kSize * kSize * kSize / times.elapsed;
  return times;
}

absl::Status CheckSupport(const Dataflow& dataflow, const ConvShape& shape) {
  return dataflow.Supports(Pass::kForward, shape).ToStatus();
}

// Index, query and, with a dataflow, the map that it reads.
absl::StatusOr<DeviceTimes> TimeMap(DeviceScenario& scenario, const Mapping& mapping,
                                    const Dataflow* dataflow, const ConvShape& shape,
                                    GateFailures& failures) {
  using Prepared = std::shared_ptr<const PreparedMap>;
  const auto build = [&](const ExecutionContext& context) -> absl::StatusOr<Prepared> {
    VOXCONV_ASSIGN_OR_RETURN(KernelMap map, QueryKernelMap(mapping, scenario.problem(), context));
    if (dataflow == nullptr) return std::make_shared<const PreparedMap>(std::move(map));
    return PrepareMap(*dataflow, Pass::kForward, shape, map, context);
  };
  VOXCONV_ASSIGN_OR_RETURN(const Prepared map, build(scenario.Context()));
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs, map->ToPairs(scenario.Context()));
  if (absl::Status same = scenario.CheckPairs(pairs); !same.ok()) {
    ++failures.count;
    return same;
  }
  return scenario.Time([&](const ExecutionContext& context) { return build(context).status(); });
}

absl::StatusOr<DeviceTimes> TimeConv(DeviceScenario& scenario, const Dataflow& dataflow,
                                     const Channels& channels, Precision precision,
                                     GateFailures& failures, benchmark::State& state) {
  VOXCONV_RETURN_IF_ERROR(scenario.Prepare());
  const ConvShape shape = scenario.ShapeOf(channels, precision);
  VOXCONV_RETURN_IF_ERROR(CheckSupport(dataflow, shape));
  VOXCONV_ASSIGN_OR_RETURN(const DeviceScenario::Data* data, scenario.DataFor(channels, precision));
  const ExecutionContext context = scenario.Context();
  const MapProblem problem = scenario.problem();
  const TensorView &features = data->features.view(), &weights = data->weights.view();
  VOXCONV_ASSIGN_OR_RETURN(
      const auto mapping, scenario.registry().mappings().Create(scenario.defaults().trusted.mapping,
                                                                context.backend->kind()));
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap queried, QueryKernelMap(*mapping, problem, context));
  Workspace workspace;
  {
    VOXCONV_ASSIGN_OR_RETURN(const Tensor output,
                             verify::ConvolveOntoNan(dataflow, queried, features, weights,
                                                     precision, workspace, context));
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<float> values, output.ToHost(context));
    const auto same = verify::CompareOutputs(
        values, data->output,
        verify::DifferenceBound({}, verify::RunPrecisionOf(dataflow, shape),
                                shape.num_offsets * shape.c_in, /*same_operands=*/true),
        "f32");
    if (!same.ok()) {
      ++failures.count;
      return same.status();
    }
  }
  VOXCONV_ASSIGN_OR_RETURN(const auto map,
                           PrepareMap(dataflow, Pass::kForward, shape, queried, context));
  // Once, as networks do.
  VOXCONV_ASSIGN_OR_RETURN(const auto prepared_weights,
                           dataflow.PrepareWeights(shape, weights, context));
  const auto convolve = [&](const ExecutionContext& run) -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(const auto plan, dataflow.Plan(Pass::kForward, *map, shape, run));
    return RunPlannedConvolution(dataflow, *plan, *map, features, weights, workspace, run,
                                 /*epilogue=*/{}, /*settled=*/false, prepared_weights.get())
        .status();
  };
  VOXCONV_ASSIGN_OR_RETURN(DeviceTimes times, scenario.Time(convolve));
  const double flops = 2.0 * static_cast<double>(scenario.num_pairs()) *
                       static_cast<double>(channels.in * channels.out);
  const int64_t element = SizeOf(StorageOf(precision));
  const auto bytes = static_cast<double>(
      problem.inputs.size() * channels.in * element +
      problem.outputs.size() * (channels.out * element + int64_t{4} * shape.num_offsets));
  state.counters["TFLOP/s"] = 1e-6 * flops / times.elapsed;
  state.counters["MB"] = 1e-6 * bytes;
  return times;
}

absl::StatusOr<DeviceTimes> TimeSort(DeviceScenario& scenario, GateFailures& failures,
                                     benchmark::State& state) {
  VoxelOps* const ops = scenario.backend().voxel_ops();
  if (ops == nullptr) return absl::UnimplementedError("the backend has no voxel operators");
  const CoordinateSet& given = scenario.coordinates();
  state.counters["voxels"] = static_cast<double>(given.size());
  VOXCONV_ASSIGN_OR_RETURN(std::vector<Coordinate> expected,
                           CopyToHost(given.rows(), scenario.Context()));
  std::sort(expected.begin(), expected.end());
  VOXCONV_ASSIGN_OR_RETURN(const SortedVoxels sorted, ops->Sort(given, scenario.Context()));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<Coordinate> rows,
                           CopyToHost(sorted.set->rows(), scenario.Context()));
  if (rows != expected) {
    ++failures.count;
    return absl::InternalError("the rows are not in the order of their keys");
  }
  return scenario.Time(
      [&](const ExecutionContext& context) { return ops->Sort(given, context).status(); });
}

}  // namespace

// One iteration: DeviceScenario::Time repeats the work itself.
void AddDeviceBenchmark(const std::string& name, DeviceBody body) {
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

void AddCeilingBenchmarks(const std::shared_ptr<DeviceScenario>& scenario,
                          const std::vector<Precision>& precisions) {
  AddDeviceBenchmark("copy/device",
                     [=](benchmark::State& state) { return TimeCopy(*scenario, state); });
  AddDeviceBenchmark("launch/device",
                     [=](benchmark::State& state) { return TimeLaunch(*scenario, state); });
  for (Precision precision : precisions) {
    AddDeviceBenchmark(
        absl::StrCat("gemm/", ToString(precision), "/device"),
        [=](benchmark::State& state) { return TimeGemm(*scenario, precision, state); });
  }
}

void AddDeviceMapBenchmark(const std::string& mapping, const MapReader& reader,
                           const std::shared_ptr<DeviceScenario>& scenario,
                           const std::shared_ptr<GateFailures>& failures) {
  const std::string reads = reader.dataflow.empty() ? "" : absl::StrCat("/for=", reader.dataflow);
  AddDeviceBenchmark(
      absl::StrCat("map/", mapping, "/", scenario->input(), "/K27", reads),
      [=](benchmark::State&) -> absl::StatusOr<DeviceTimes> {
        VOXCONV_RETURN_IF_ERROR(scenario->Prepare());
        const Registry& registry = scenario->registry();
        const BackendKind backend = scenario->backend().kind();
        VOXCONV_ASSIGN_OR_RETURN(const auto plugin, registry.mappings().Create(mapping, backend));
        std::unique_ptr<const Dataflow> dataflow;
        const ConvShape shape = scenario->ShapeOf(reader.channels, reader.precision);
        if (!reader.dataflow.empty()) {
          VOXCONV_ASSIGN_OR_RETURN(dataflow, registry.dataflows().Create(reader.dataflow, backend));
          VOXCONV_RETURN_IF_ERROR(CheckSupport(*dataflow, shape));
        }
        return TimeMap(*scenario, *plugin, dataflow.get(), shape, *failures);
      });
}

void AddDeviceSortBenchmark(const std::shared_ptr<DeviceScenario>& scenario,
                            const std::shared_ptr<GateFailures>& failures) {
  AddDeviceBenchmark(absl::StrCat("sort/", scenario->input(), "/device"),
                     [=](benchmark::State& state) -> absl::StatusOr<DeviceTimes> {
                       VOXCONV_RETURN_IF_ERROR(scenario->Prepare());
                       return TimeSort(*scenario, *failures, state);
                     });
}

void AddDeviceStridedBenchmark(const std::string& mapping, const std::string& output_coords,
                               const std::shared_ptr<DeviceScenario>& scenario) {
  AddDeviceBenchmark(
      absl::StrCat("map/", mapping, "/", output_coords, "/", scenario->input(), "/K8s2"),
      [=](benchmark::State&) -> absl::StatusOr<DeviceTimes> {
        VOXCONV_RETURN_IF_ERROR(scenario->Prepare());
        const Registry& registry = scenario->registry();
        const BackendKind backend = scenario->backend().kind();
        VOXCONV_ASSIGN_OR_RETURN(const auto plugin, registry.mappings().Create(mapping, backend));
        VOXCONV_ASSIGN_OR_RETURN(const auto coords,
                                 registry.output_coords().Create(output_coords, backend));
        VOXCONV_ASSIGN_OR_RETURN(
            const ConvGeometry geometry,
            ConvGeometry::Create(
                {.kind = ConvKind::kStrided, .kernel = {2, 2, 2}, .stride = {2, 2, 2}}));
        const CoordinateSet& inputs = scenario->coordinates();
        return scenario->Time([&](const ExecutionContext& context) -> absl::Status {
          VOXCONV_ASSIGN_OR_RETURN(const CoordinateSetPtr outputs,
                                   coords->Compute(inputs, geometry, context));
          VOXCONV_ASSIGN_OR_RETURN(const KernelMap map,
                                   QueryKernelMap(*plugin, {inputs, *outputs, geometry}, context));
          return context.backend->map_ops().To(MapForm::kNeighbourTable, map, context).status();
        });
      });
}

void AddDeviceConvBenchmark(const std::string& dataflow, const Channels& channels,
                            Precision precision, const std::shared_ptr<DeviceScenario>& scenario,
                            const std::shared_ptr<GateFailures>& failures) {
  AddDeviceBenchmark(absl::StrCat("conv/", dataflow, "/", scenario->input(), "/", channels.name(),
                                  "/", ToString(precision)),
                     [=](benchmark::State& state) -> absl::StatusOr<DeviceTimes> {
                       VOXCONV_RETURN_IF_ERROR(scenario->Open());
                       VOXCONV_ASSIGN_OR_RETURN(const auto plugin,
                                                scenario->registry().dataflows().Create(
                                                    dataflow, scenario->backend().kind()));
                       return TimeConv(*scenario, *plugin, channels, precision, *failures, state);
                     });
}

}  // namespace voxconv::bench
