// SPDX-License-Identifier: Apache-2.0
#include "voxconv/experiments/runner/loaded_input.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "voxconv/core/parse.h"
#include "voxconv/measure/result_line.h"

namespace voxconv::experiment {
namespace {

double Occupied(const VoxelizedCloud& cloud) {
  if (cloud.coords.empty()) return 0;
  double cells = 1;
  for (int32_t Coordinate::*axis : {&Coordinate::x, &Coordinate::y, &Coordinate::z}) {
    const auto [least, most] = std::minmax_element(
        cloud.coords.begin(), cloud.coords.end(),
        [axis](const Coordinate& p, const Coordinate& q) { return p.*axis < q.*axis; });
    cells *= static_cast<double>((*most).*axis) - (*least).*axis + 1;
  }
  return static_cast<double>(cloud.size()) / cells;
}

// The rows of a further sample after those that are there. Each sample is in order for itself.
absl::Status AppendSample(const VoxelizedCloud& sample, VoxelizedCloud& cloud) {
  if (sample.channels != cloud.channels) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of inputs with ", cloud.channels, " and ", sample.channels,
                     " features; allowed are inputs with the same number of them"));
  }
  cloud.coords.insert(cloud.coords.end(), sample.coords.begin(), sample.coords.end());
  cloud.features.insert(cloud.features.end(), sample.features.begin(), sample.features.end());
  cloud.points += sample.points;
  cloud.dropped += sample.dropped;
  cloud.cropped += sample.cropped;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LoadedInput> LoadInputOf(const InputSource& source) {
  LoadOptions options;
  options.read = source.read;
  VOXCONV_ASSIGN_OR_RETURN(options.voxelize.size, ParseDouble3("voxel size", source.voxel_size));
  options.voxelize.order = OrderOf(source);
  if (!source.range.empty()) {
    VOXCONV_ASSIGN_OR_RETURN(options.range, ParseRange("range", source.range));
  }
  LoadedInput input;
  VOXCONV_ASSIGN_OR_RETURN(input.cloud, LoadInputAsAsked(source.input, options));
  for (const std::string& sample : source.batch) {
    ++options.voxelize.batch;
    const absl::StatusOr<VoxelizedCloud> more = LoadInputAsAsked(sample, options);
    if (!more.ok()) return StatusAt(absl::StrCat("sample '", sample, "'"), more.status());
    VOXCONV_RETURN_IF_ERROR(AppendSample(*more, input.cloud));
  }
  input.hash = measure::HashInput(input.cloud.coords, input.cloud.features);
  input.density = measure::MeasureDensity(input.cloud.coords);
  input.occupied = Occupied(input.cloud);
  return input;
}

}  // namespace voxconv::experiment
