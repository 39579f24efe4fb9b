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

absl::StatusOr<Scenario::Data*> Scenario::DataFor(const Channels& channels) {
  if (const auto found = data_.find(channels); found != data_.end()) return &found->second;
  // One entry at a time: wide features of a large input are most of the memory.
  data_.clear();
  const int64_t rows = coordinates_->size(), weight_rows = geometry_->num_offsets() * channels.in;
  Data data;
  VOXCONV_ASSIGN_OR_RETURN(data.features, Tensor::FromHost(verify::Values(rows * channels.in, 1),
                                                           rows, channels.in, Context()));
  VOXCONV_ASSIGN_OR_RETURN(
      data.weights, Tensor::FromHost(verify::Values(weight_rows * channels.out, 2), weight_rows,
                                     channels.out, Context()));
  return &data_.emplace(channels, std::move(data)).first->second;
}

double Median(const std::vector<double>& values) { return measure::Quantile(values, 0.5); }

}  // namespace voxconv::bench
