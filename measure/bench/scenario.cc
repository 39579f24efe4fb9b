// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/bench/scenario.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "voxconv/builtin/backends.h"
#include "voxconv/io/voxelize.h"
#include "voxconv/measure/defaults.h"
#include "voxconv/measure/statistics.h"
#include "voxconv/measure/timer.h"
#include "voxconv/verify/bounds.h"
#include "voxconv/verify/convolve.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::bench {

std::string NameOfInput(const std::string& input, const LoadOptions& load) {
  const std::array<double, 3>& size = load.voxelize.size;
  std::string name = input;
  if (size != VoxelizeOptions{}.size) {
    const bool cube = size[0] == size[1] && size[1] == size[2];
    absl::StrAppend(&name, "@", cube ? absl::StrCat(size[0]) : absl::StrJoin(size, "x"));
  }
  if (load.range.has_value()) {
    absl::StrAppend(&name, "[", absl::StrJoin(load.range->low, ","), ",",
                    absl::StrJoin(load.range->high, ","), "]");
  }
  if (load.voxelize.order != VoxelizeOptions{}.order) {
    absl::StrAppend(&name, ",order=", ToString(load.voxelize.order));
  }
  return name;
}

std::string NameOfCache(const measure::CacheOptions& cache) {
  return absl::StrCat(cache.cold ? ",cache=cold" : "",
                      cache.limit_mib == 0 ? "" : absl::StrCat(",l2_mib=", cache.limit_mib));
}

std::string Channels::name() const { return absl::StrCat(in, "x", out); }

std::string Scenario::ThreadsName() const { return absl::StrCat("threads=", threads_); }

absl::Status Scenario::Prepare() {
  if (!prepared_.has_value()) prepared_ = Load();
  return *prepared_;
}

absl::Status Scenario::Load() {
  VOXCONV_ASSIGN_OR_RETURN(backend_, MakeBackend({.threads = threads_}));
  VOXCONV_ASSIGN_OR_RETURN(serial_, MakeBackend({.threads = 1}));
  VOXCONV_ASSIGN_OR_RETURN(const VoxelizedCloud cloud, LoadInputAsAsked(input_, load_));
  VOXCONV_ASSIGN_OR_RETURN(coordinates_, MakeCoordinates(cloud, Context()));
  VOXCONV_ASSIGN_OR_RETURN(geometry_, ConvGeometry::Create({.kind = ConvKind::kSubmanifold}));
  VOXCONV_ASSIGN_OR_RETURN(const measure::Defaults defaults, measure::LoadDefaults());
  baseline_name_ = defaults.baseline_mapping;
  baseline_dataflow_ = defaults.baseline_dataflow;
  VOXCONV_ASSIGN_OR_RETURN(baseline_,
                           registry_.mappings().Create(baseline_name_, backend_->kind()));
  VOXCONV_ASSIGN_OR_RETURN(pairs_, QueryPairs(*baseline_, problem(), Context()));
  return absl::OkStatus();
}

absl::StatusOr<double> Scenario::TimeBaseline() {
  const measure::Timer timer;
  VOXCONV_ASSIGN_OR_RETURN(const auto index, baseline_->BuildIndex(*coordinates_, Context()));
  VOXCONV_RETURN_IF_ERROR(baseline_->Query(*index, problem(), Context()).status());
  return timer.Seconds();
}

absl::StatusOr<Scenario::Data*> Scenario::DataFor(const Channels& channels, Precision precision) {
  const std::pair key(channels, precision);
  if (const auto found = data_.find(key); found != data_.end()) return &found->second;
  // One entry at a time: wide features of a large input are most of the memory.
  data_.clear();
  const ExecutionContext context = Context();
  const int64_t rows = coordinates_->size(), weight_rows = geometry_->num_offsets() * channels.in;
  const auto features = verify::RoundedTo(precision, verify::Values(rows * channels.in, 1));
  const auto weights = verify::RoundedTo(precision, verify::Values(weight_rows * channels.out, 2));
  Data data;
  {
    VOXCONV_ASSIGN_OR_RETURN(const Tensor x,
                             Tensor::FromHost(features, rows, channels.in, context));
    VOXCONV_ASSIGN_OR_RETURN(const Tensor w,
                             Tensor::FromHost(weights, weight_rows, channels.out, context));
    VOXCONV_ASSIGN_OR_RETURN(const auto baseline,
                             registry_.dataflows().Create(baseline_dataflow_, backend_->kind()));
    Workspace workspace;
    VOXCONV_ASSIGN_OR_RETURN(const Tensor y,
                             verify::ConvolveOntoNan(*baseline, pairs_, x.view(), w.view(),
                                                     Precision::kF32, workspace, context));
    VOXCONV_ASSIGN_OR_RETURN(data.output, y.ToHost(context));
  }
  const DType dtype = StorageOf(precision);
  VOXCONV_ASSIGN_OR_RETURN(data.features,
                           Tensor::FromHost(features, rows, channels.in, context, dtype));
  VOXCONV_ASSIGN_OR_RETURN(data.weights,
                           Tensor::FromHost(weights, weight_rows, channels.out, context, dtype));
  return &data_.emplace(key, std::move(data)).first->second;
}

double Median(const std::vector<double>& values) { return measure::Quantile(values, 0.5); }

}  // namespace voxconv::bench
