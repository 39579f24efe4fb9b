// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/bench/voxel_benchmarks.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/core/voxel_ops.h"
#include "voxconv/io/scenes.h"
#include "voxconv/measure/bench/device_benchmarks.h"
#include "voxconv/measure/preset.h"
#include "voxconv/measure/timer.h"
#include "voxconv/networks/executor.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"

namespace voxconv::bench {
namespace {

// An input's points, as f32 and in host memory. Missing columns are ones.
struct PointRows {
  PointCloud cloud;
  int64_t columns = 0;
  std::vector<float> values;  // [points, columns]
};

absl::StatusOr<PointCloud> ReadPoints(const std::string& input, const LoadOptions& load) {
  if (!IsSceneSpec(input)) return ReadPointCloud(input, load.read);
  VOXCONV_ASSIGN_OR_RETURN(Scene scene, MakeScene(input));
  if (auto* const cloud = std::get_if<PointCloud>(&scene)) return std::move(*cloud);
  return absl::InvalidArgumentError(absl::StrCat(input, ": --points needs points, not voxels"));
}

// `columns`: 0 for all. The cloud becomes what the values say, so that the host has the same.
absl::StatusOr<PointRows> LoadPoints(const std::string& input, const LoadOptions& load,
                                     int64_t columns) {
  PointRows rows;
  VOXCONV_ASSIGN_OR_RETURN(PointCloud cloud, ReadPoints(input, load));
  if (load.range.has_value()) {
    CropToRange(*load.range, cloud);
    VOXCONV_RETURN_IF_ERROR(CheckLeft(input, cloud.size(), cloud.cropped));
  }
  rows.columns = columns == 0 ? 3 + cloud.channels() : std::max<int64_t>(columns, 3);
  rows.values.assign(cloud.size() * rows.columns, 1.0f);
  const int64_t common = std::min(cloud.channels(), rows.columns - 3);
  for (int64_t i = 0; i < cloud.size(); ++i) {
    float* const to = rows.values.data() + i * rows.columns;
    for (int64_t axis = 0; axis < 3; ++axis) to[axis] = static_cast<float>(cloud.xyz[3 * i + axis]);
    std::copy_n(cloud.features.begin() + i * cloud.channels(), common, to + 3);
  }
  rows.cloud.feature_names.resize(rows.columns - 3);
  for (int64_t i = 0; i < cloud.size(); ++i) {
    const float* const row = rows.values.data() + i * rows.columns;
    rows.cloud.xyz.insert(rows.cloud.xyz.end(), row, row + 3);
    rows.cloud.features.insert(rows.cloud.features.end(), row + 3, row + rows.columns);
  }
  return rows;
}

VoxelOptions OptionsOf(const LoadOptions& load) {
  VoxelOptions options;
  options.size = load.voxelize.size;
  options.origin = load.voxelize.origin;
  return options;
}

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

absl::StatusOr<VoxelOps*> OpsOf(const ExecutionContext& context) {
  if (VoxelOps* const ops = context.backend->voxel_ops()) return ops;
  return absl::UnimplementedError("the backend has no voxel operators");
}

// A cloud in the backend's memory whose voxels there are the host's.
class CheckedPoints {
 public:
  absl::Status Load(const std::string& input, const LoadOptions& load, int64_t columns,
                    const ExecutionContext& context, GateFailures& failures) {
    VOXCONV_ASSIGN_OR_RETURN(const PointRows rows, LoadPoints(input, load, columns));
    size_ = rows.cloud.size();
    options_ = OptionsOf(load);
    VOXCONV_ASSIGN_OR_RETURN(points_, Tensor::FromHost(rows.values, size_, rows.columns, context));
    const absl::Status same = Compare(rows.cloud, context);
    if (absl::IsInternal(same)) ++failures.count;
    return same;
  }

  absl::StatusOr<PointVoxels> Voxelize(const ExecutionContext& context) const {
    VOXCONV_ASSIGN_OR_RETURN(VoxelOps* const ops, OpsOf(context));
    return ops->Voxelize(points_.view(), nullptr, options_, context);
  }

  void Count(benchmark::State& state) const {
    state.counters["points"] = static_cast<double>(size_);
    state.counters["voxels"] = static_cast<double>(num_voxels_);
  }

 private:
  // kInternal if they are not the same, bit by bit. Rows of both are in scan order.
  absl::Status Compare(const PointCloud& cloud, const ExecutionContext& context) {
    VoxelizeOptions host;
    host.size = options_.size;
    host.origin = options_.origin;
    std::vector<int64_t> row_of_point;
    VOXCONV_ASSIGN_OR_RETURN(const VoxelizedCloud expected,
                             voxconv::Voxelize(cloud, host, &row_of_point));
    VOXCONV_ASSIGN_OR_RETURN(const PointVoxels voxels, Voxelize(context));
    VOXCONV_ASSIGN_OR_RETURN(const VoxelSummary summary, CollectVoxels(voxels, context));
    VOXCONV_ASSIGN_OR_RETURN(const auto coords, CopyToHost(voxels.coords, context));
    VOXCONV_ASSIGN_OR_RETURN(const auto features, voxels.features.ToHost(context));
    VOXCONV_ASSIGN_OR_RETURN(const auto own_rows, CopyToHost(voxels.voxel_of_point, context));
    num_voxels_ = summary.voxels;
    const bool same =
        num_voxels_ == expected.size() && std::ranges::equal(own_rows, row_of_point) &&
        std::equal(expected.coords.begin(), expected.coords.end(), coords.begin()) &&
        std::equal(expected.features.begin(), expected.features.end(), features.begin(), SameBits);
    if (same) return absl::OkStatus();
    return absl::InternalError("the voxels differ from those of the host");
  }

  int64_t size_ = 0, num_voxels_ = 0;
  VoxelOptions options_;
  Tensor points_;
};

void Skip(benchmark::State& state, const absl::Status& status) {
  state.SkipWithError(std::string(status.message()).c_str());
}

void RunVoxelize(const std::string& input, const LoadOptions& load, int threads,
                 GateFailures& failures, benchmark::State& state) {
  auto backend = MakeBackend({.threads = threads});
  if (!backend.ok()) return Skip(state, backend.status());
  const ExecutionContext context = {backend->get(), &(*backend)->main_stream()};
  CheckedPoints points;
  absl::Status status = points.Load(input, load, 0, context, failures);
  for (auto _ : state) {
    const measure::Timer timer;
    if (status.ok()) status = points.Voxelize(context).status();
    state.SetIterationTime(timer.Seconds());
    if (!status.ok()) break;
  }
  if (!status.ok()) return Skip(state, status);
  points.Count(state);
}

// Whole frames of one network.
class PointNetwork {
 public:
  absl::Status Prepare(const NetworkSpec& spec, const std::string& input, const LoadOptions& load,
                       const BackendChoice& choice, const Registry& registry,
                       GateFailures& failures) {
    dtype_ = StorageOf(spec.precision);
    VOXCONV_ASSIGN_OR_RETURN(backend_, MakeBackend(choice));
    VOXCONV_ASSIGN_OR_RETURN(NetworkGraph graph, MakeModel(spec.network, {.grid = spec.grid}));
    InitializeParameters(graph, /*seed=*/1);
    VOXCONV_RETURN_IF_ERROR(points_.Load(input, load, graph.in_channels(), context(), failures));
    const RunConfig config{.planner = measure::MakePlanner(spec.configuration),
                           .precision = spec.precision,
                           .fold_batch_norm = true,
                           .keep_maps = false,
                           .parallel_maps = spec.parallel_maps,
                           .profile_stages = false};
    VOXCONV_ASSIGN_OR_RETURN(runner_,
                             NetworkRunner::Create(std::move(graph), config, registry, *backend_));
    constexpr int kWarmup = 3;  // memory pools, libraries' choices
    for (int i = 0; i < kWarmup; ++i) VOXCONV_RETURN_IF_ERROR(Frame());
    return absl::OkStatus();
  }

  absl::Status Frame() {
    VOXCONV_ASSIGN_OR_RETURN(voxels_, points_.Voxelize(context()));
    VOXCONV_ASSIGN_OR_RETURN(SparseTensorView input, TakeVoxels(voxels_, context()));
    if (dtype_ != DType::kF32) {
      const ConstTensorView features = input.features;
      VOXCONV_ASSIGN_OR_RETURN(converted_,
                               Tensor::Create(features.rows, features.channels, dtype_, context()));
      VOXCONV_RETURN_IF_ERROR(
          backend_->tensor_ops().Convert(features, converted_.view(), context()));
      input.features = converted_.view();
    }
    VOXCONV_ASSIGN_OR_RETURN(result_, runner_->Run(input));
    return context().stream->Synchronize();
  }

  int64_t waits() const { return backend_->synchronisations(); }
  const CheckedPoints& points() const { return points_; }

 private:
  ExecutionContext context() const { return {backend_.get(), &backend_->main_stream()}; }

  std::unique_ptr<Backend> backend_;
  CheckedPoints points_;
  DType dtype_ = DType::kF32;
  std::unique_ptr<NetworkRunner> runner_;
  PointVoxels voxels_;
  Tensor converted_;
  RunResult result_;
};

}  // namespace

void AddVoxelizeBenchmark(const std::string& input, const LoadOptions& load, int threads,
                          const std::shared_ptr<GateFailures>& failures) {
  const std::string name =
      absl::StrCat("points/", NameOfInput(input, load), "/voxels/threads=", threads);
  benchmark::RegisterBenchmark(
      name.c_str(),
      [=](benchmark::State& state) { RunVoxelize(input, load, threads, *failures, state); })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

void AddDeviceVoxelizeBenchmark(const std::string& input, const LoadOptions& load,
                                const std::shared_ptr<DeviceScenario>& scenario,
                                const std::shared_ptr<GateFailures>& failures) {
  AddDeviceBenchmark(
      absl::StrCat("points/", scenario->input(), "/voxels/device"),
      [=](benchmark::State& state) -> absl::StatusOr<DeviceTimes> {
        VOXCONV_RETURN_IF_ERROR(scenario->Open());
        CheckedPoints points;
        VOXCONV_RETURN_IF_ERROR(points.Load(input, load, 0, scenario->Context(), *failures));
        points.Count(state);
        return scenario->Time(
            [&](const ExecutionContext& context) { return points.Voxelize(context).status(); });
      });
}

void AddPointNetworkBenchmark(const NetworkSpec& spec, const std::string& input,
                              const LoadOptions& load, const BackendChoice& choice,
                              const Registry& registry,
                              const std::shared_ptr<GateFailures>& failures) {
  const std::string name = absl::StrCat("points/", NameOfInput(input, load), "/", NetworkName(spec),
                                        "/", spec.name, "/", ToString(spec.precision));
  const Registry* const plugins = &registry;
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) {
                                 PointNetwork network;
                                 absl::Status status = network.Prepare(spec, input, load, choice,
                                                                       *plugins, *failures);
                                 std::vector<double> wall;
                                 int64_t waits = 0;
                                 for (auto _ : state) {
                                   const int64_t before = status.ok() ? network.waits() : 0;
                                   const measure::Timer timer;
                                   if (status.ok()) status = network.Frame();
                                   state.SetIterationTime(timer.Seconds());
                                   if (!status.ok()) break;
                                   wall.push_back(timer.Milliseconds());
                                   waits = std::max(waits, network.waits() - before);
                                 }
                                 if (!status.ok()) return Skip(state, status);
                                 network.points().Count(state);
                                 state.counters["median_ms"] = Median(wall);
                                 state.counters["synchronisations"] = static_cast<double>(waits);
                               })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace voxconv::bench
