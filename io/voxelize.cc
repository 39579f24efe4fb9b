// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/voxelize.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "voxconv/core/coordinate_key.h"

namespace voxconv {
namespace {

struct KeyedPoint {
  uint64_t key;  // PackKey of the point's voxel
  int64_t point;

  bool operator<(const KeyedPoint& other) const {
    return key != other.key ? key < other.key : point < other.point;
  }
};

absl::string_view AxisName(size_t axis) { return {&kAxisNames[axis], 1}; }

absl::Status CheckOptions(const VoxelizeOptions& options) {
  for (size_t axis = 0; axis < 3; ++axis) {
    if (!(options.size[axis] > 0) || !std::isfinite(options.size[axis])) {
      return absl::InvalidArgumentError(absl::StrCat("voxel size along ", AxisName(axis), " = ",
                                                     options.size[axis],
                                                     ": must be positive and finite"));
    }
    if (!std::isfinite(options.origin[axis])) {
      return absl::InvalidArgumentError(absl::StrCat("origin along ", AxisName(axis), " = ",
                                                     options.origin[axis], ": must be finite"));
    }
  }
  if (options.rule == VoxelRule::kSpconv) {
    for (size_t axis = 0; axis < 3; ++axis) {
      const float size = static_cast<float>(options.size[axis]);
      if (size > 0 && std::isfinite(size)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("voxel size along ", AxisName(axis), " = ", options.size[axis],
                       ": voxel rule spconv needs one within float32"));
    }
  }
  if (options.batch < 0 || options.batch > kMaxBatch) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch index = ", options.batch, ": allowed are 0 to ", kMaxBatch));
  }
  return absl::OkStatus();
}

// The number of the voxel along one axis, a whole number or NaN.
double VoxelIndex(VoxelRule rule, double position, double origin, double size) {
  if (rule == VoxelRule::kF64) return std::floor((position - origin) / size);
  const float offset = static_cast<float>(position) - static_cast<float>(origin);
  return std::floor(offset / static_cast<float>(size));
}

absl::StatusOr<std::vector<KeyedPoint>> SortedPoints(const PointCloud& cloud,
                                                     const VoxelizeOptions& options) {
  std::vector<KeyedPoint> keyed(static_cast<size_t>(cloud.size()));
  for (size_t i = 0; i < keyed.size(); ++i) {
    Coordinate voxel{.b = options.batch};
    int32_t* const axes[3] = {&voxel.x, &voxel.y, &voxel.z};
    for (size_t axis = 0; axis < 3; ++axis) {
      const double position = cloud.xyz[3 * i + axis];
      const double index =
          VoxelIndex(options.rule, position, options.origin[axis], options.size[axis]);
      if (!(index >= kMinCoordinate && index <= kMaxCoordinate)) {
        return absl::OutOfRangeError(
            absl::StrCat("point ", i, ": ", AxisName(axis), " = ", position, " falls into voxel ",
                         index, " at size ", options.size[axis], "; allowed are ", kMinCoordinate,
                         " to ", kMaxCoordinate, ": use a larger voxel size or another origin"));
      }
      *axes[axis] = static_cast<int32_t>(index);
    }
    keyed[i] = {PackKey(voxel), static_cast<int64_t>(i)};
  }
  std::sort(keyed.begin(), keyed.end());
  return keyed;
}

// Adds one point's features (its position first, if asked for) to the voxel's sums.
void Accumulate(const PointCloud& cloud, int64_t point, bool xyz_features,
                std::vector<double>& sums) {
  size_t channel = 0;
  if (xyz_features) {
    for (; channel < 3; ++channel) {
      sums[channel] += cloud.xyz[static_cast<size_t>(3 * point) + channel];
    }
  }
  const float* row = cloud.features.data() + point * cloud.channels();
  for (int64_t i = 0; i < cloud.channels(); ++i) sums[channel++] += row[i];
}

}  // namespace

absl::StatusOr<VoxelRule> ParseVoxelRule(absl::string_view text) {
  if (text == "f64") return VoxelRule::kF64;
  if (text == "spconv") return VoxelRule::kSpconv;
  return absl::InvalidArgumentError(
      absl::StrCat("voxel rule '", absl::CEscape(text), "': allowed are f64 and spconv"));
}

absl::StatusOr<VoxelizedCloud> Voxelize(const PointCloud& cloud, const VoxelizeOptions& options) {
  return Voxelize(cloud, options, nullptr);
}

absl::StatusOr<VoxelizedCloud> Voxelize(const PointCloud& cloud, const VoxelizeOptions& options,
                                        std::vector<int64_t>* voxel_of_point) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  if (absl::Status status = ValidatePointCloud(cloud); !status.ok()) return status;
  const absl::StatusOr<std::vector<KeyedPoint>> keyed = SortedPoints(cloud, options);
  if (!keyed.ok()) return keyed.status();
  VoxelizedCloud out;
  out.points = cloud.size();
  out.dropped = cloud.dropped;
  out.cropped = cloud.cropped;
  out.from_mesh = cloud.from_mesh;
  if (options.xyz_features) out.names = {"x", "y", "z"};
  out.names.insert(out.names.end(), cloud.feature_names.begin(), cloud.feature_names.end());
  out.channels = static_cast<int>(out.names.size());
  if (voxel_of_point != nullptr) voxel_of_point->resize(cloud.size());
  std::vector<double> sums(out.names.size());
  for (auto begin = keyed->begin(); begin != keyed->end();) {
    std::fill(sums.begin(), sums.end(), 0.0);
    auto end = begin;
    const bool first_alone = options.rule == VoxelRule::kSpconv;
    for (; end != keyed->end() && end->key == begin->key; ++end) {
      if (voxel_of_point != nullptr) (*voxel_of_point)[end->point] = out.size();
      if (first_alone && end != begin) continue;
      Accumulate(cloud, end->point, options.xyz_features, sums);
    }
    const double count = first_alone ? 1.0 : static_cast<double>(end - begin);
    for (const double sum : sums) out.features.push_back(static_cast<float>(sum / count));
    out.coords.push_back(UnpackKey(begin->key));
    begin = end;
  }
  return out;
}

absl::StatusOr<CoordinateSetPtr> MakeCoordinates(const VoxelizedCloud& cloud,
                                                 const ExecutionContext& context) {
  return CoordinateSet::Create(cloud.coords, {1, 1, 1}, context);
}

absl::StatusOr<SparseTensor> MakeSparseTensor(const VoxelizedCloud& cloud, int64_t channels,
                                              const ExecutionContext& context, DType dtype) {
  return SparseTensor::Create(cloud.coords, {1, 1, 1}, FeaturesWithChannels(cloud, channels),
                              channels, context, dtype);
}

std::string DescribeChannels(const VoxelizedCloud& cloud, int64_t channels) {
  if (channels == cloud.channels) return "";
  const std::string has =
      absl::StrCat("the input has ", cloud.channels, " features (",
                   absl::StrJoin(cloud.names, ", "), "), the network takes ", channels, ": ");
  if (channels > cloud.channels) {
    return absl::StrCat(has, "the last ", channels - cloud.channels, " are filled with ones");
  }
  if (cloud.names.size() != static_cast<size_t>(cloud.channels)) {
    return absl::StrCat(has, "the last ", cloud.channels - channels, " are left out");
  }
  return absl::StrCat(has, absl::StrJoin(cloud.names.begin() + channels, cloud.names.end(), ", "),
                      channels + 1 == cloud.channels ? " is" : " are", " left out");
}

std::vector<float> FeaturesWithChannels(const VoxelizedCloud& cloud, int64_t channels) {
  std::vector<float> features(cloud.size() * channels, 1.0f);
  const int64_t common = std::min<int64_t>(channels, cloud.channels);
  for (int64_t row = 0; row < cloud.size(); ++row) {
    std::copy_n(cloud.features.begin() + row * cloud.channels, common,
                features.begin() + row * channels);
  }
  return features;
}

}  // namespace voxconv
