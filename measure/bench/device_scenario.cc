// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/bench/device_scenario.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/builtin/backends.h"
#include "voxconv/io/voxelize.h"
#include "voxconv/verify/bounds.h"
#include "voxconv/verify/convolve.h"
#include "voxconv/verify/gate.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::bench {
namespace {

constexpr int kWarmRuns = 3;
constexpr int kTimedRuns = 30;
constexpr int64_t kScratchBytes = int64_t{1} << 30;  // a fill of it takes about 0.3 ms

}  // namespace

absl::Status DeviceScenario::Open() {
  if (opened_.has_value()) return *opened_;
  absl::StatusOr<std::unique_ptr<Backend>> backend =
      MakeBackend({.kind = BackendKind::kCuda, .device = device_});
  opened_ = backend.status();
  if (backend.ok()) {
    backend_ = *std::move(backend);
    absl::StatusOr<Buffer> scratch = backend_->Allocate(kScratchBytes, backend_->main_stream());
    opened_ = scratch.status();
    if (scratch.ok()) scratch_ = *std::move(scratch);
    absl::StatusOr<measure::CacheUse> cache = measure::CacheUse::Create(cache_options_, Context());
    opened_->Update(cache.status());
    if (cache.ok()) cache_ = *std::move(cache);
  }
  return *opened_;
}

absl::Status DeviceScenario::Prepare() {
  if (!prepared_.has_value()) prepared_ = Load();
  return *prepared_;
}

absl::Status DeviceScenario::Load() {
  VOXCONV_RETURN_IF_ERROR(Open());
  VOXCONV_ASSIGN_OR_RETURN(const VoxelizedCloud cloud, LoadInputAsAsked(input_, load_));
  VOXCONV_ASSIGN_OR_RETURN(coordinates_, MakeCoordinates(cloud, Context()));
  VOXCONV_ASSIGN_OR_RETURN(geometry_, ConvGeometry::Create({.kind = ConvKind::kSubmanifold}));

  VOXCONV_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> cpu, MakeBackend({}));
  const ExecutionContext context{cpu.get(), &cpu->main_stream()};
  VOXCONV_ASSIGN_OR_RETURN(const CoordinateSetPtr set, MakeCoordinates(cloud, context));
  VOXCONV_ASSIGN_OR_RETURN(defaults_, measure::LoadDefaults());
  VOXCONV_ASSIGN_OR_RETURN(const auto baseline,
                           registry_.mappings().Create(defaults_.baseline_mapping, cpu->kind()));
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap map,
                           QueryKernelMap(*baseline, {*set, *set, *geometry_}, context));
  VOXCONV_ASSIGN_OR_RETURN(pairs_, verify::PairsOnHost(map, context));
  return absl::OkStatus();
}

absl::Status DeviceScenario::CheckPairs(const KernelMap& map) const {
  return verify::CompareMaps(map, pairs_, Context(), defaults_.baseline_mapping);
}

absl::StatusOr<DeviceScenario::Data*> DeviceScenario::DataFor(const Channels& channels,
                                                              Precision precision) {
  const std::pair key(channels, precision);
  if (data_key_ == key) return &data_;
  data_key_.reset();
  const ExecutionContext context = Context();
  const int64_t rows = coordinates_->size(), weight_rows = geometry_->num_offsets() * channels.in;
  const auto features = verify::RoundedTo(precision, verify::Values(rows * channels.in, 1));
  const auto weights = verify::RoundedTo(precision, verify::Values(weight_rows * channels.out, 2));
  {
    VOXCONV_ASSIGN_OR_RETURN(const Tensor x,
                             Tensor::FromHost(features, rows, channels.in, context));
    VOXCONV_ASSIGN_OR_RETURN(const Tensor w,
                             Tensor::FromHost(weights, weight_rows, channels.out, context));
    VOXCONV_ASSIGN_OR_RETURN(
        const auto dataflow,
        registry_.dataflows().Create(defaults_.baseline_dataflow, backend_->kind()));
    PairList pairs;
    VOXCONV_ASSIGN_OR_RETURN(pairs.in, CopyToBackend<int32_t>(pairs_.in, context));
    VOXCONV_ASSIGN_OR_RETURN(pairs.out, CopyToBackend<int32_t>(pairs_.out, context));
    const KernelMap map(rows, rows, pairs_.offset_ptr, std::move(pairs));
    Workspace workspace;
    VOXCONV_ASSIGN_OR_RETURN(
        const Tensor y, verify::ConvolveOntoNan(*dataflow, map, x.view(), w.view(), Precision::kF32,
                                                workspace, context));
    VOXCONV_ASSIGN_OR_RETURN(data_.output, y.ToHost(context));
  }
  VOXCONV_ASSIGN_OR_RETURN(
      data_.features, Tensor::FromHost(features, rows, channels.in, context, StorageOf(precision)));
  VOXCONV_ASSIGN_OR_RETURN(data_.weights, Tensor::FromHost(weights, weight_rows, channels.out,
                                                           context, StorageOf(precision)));
  data_key_ = key;
  return &data_;
}

absl::StatusOr<DeviceTimes> DeviceScenario::Time(
    const std::function<absl::Status(const ExecutionContext&)>& work) {
  Stream& stream = backend_->main_stream();
  DeviceTimes times;
  std::vector<double> stages;
  for (int run = 0; run < kTimedRuns; ++run) {
    Profile elapsed, inner;
    VOXCONV_RETURN_IF_ERROR(backend_->FillBytes(scratch_.data(), 0, kScratchBytes, stream));
    for (int warm = 0; warm < kWarmRuns; ++warm) VOXCONV_RETURN_IF_ERROR(work(Context()));
    VOXCONV_RETURN_IF_ERROR(cache_.Empty(Context()));
    {
      const StageScope scope(Context(&elapsed), Stage::kFused);
      VOXCONV_RETURN_IF_ERROR(work(Context()));
    }
    VOXCONV_RETURN_IF_ERROR(cache_.Empty(Context()));
    VOXCONV_RETURN_IF_ERROR(work(Context(&inner)));
    VOXCONV_RETURN_IF_ERROR(backend_->FlushStages());
    VOXCONV_RETURN_IF_ERROR(stream.Synchronize());
    times.samples.push_back(1e3 * elapsed.Total());
    stages.push_back(1e3 * inner.Total());
  }
  times.elapsed = Median(times.samples);
  times.stages = Median(stages);
  return times;
}

}  // namespace voxconv::bench
