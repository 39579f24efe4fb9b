#include "io/voxelize.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace voxconv {
namespace {

constexpr int kAxisBits = 18;
constexpr uint64_t kAxisMask = (uint64_t{1} << kAxisBits) - 1;
constexpr absl::string_view kAxisNames[3] = {"x", "y", "z"};

struct KeyedPoint {
  uint64_t key;  // biased coordinates, x in the highest bits: integer order is (x, y, z) order
  int64_t point;

  bool operator<(const KeyedPoint& other) const {
    return key != other.key ? key < other.key : point < other.point;
  }
};

absl::Status CheckOptions(const VoxelizeOptions& options) {
  for (size_t axis = 0; axis < 3; ++axis) {
    if (!(options.size[axis] > 0) || !std::isfinite(options.size[axis])) {
      return absl::InvalidArgumentError(absl::StrCat("voxel size along ", kAxisNames[axis], " = ",
                                                     options.size[axis],
                                                     ": must be positive and finite"));
    }
    if (!std::isfinite(options.origin[axis])) {
      return absl::InvalidArgumentError(absl::StrCat("origin along ", kAxisNames[axis], " = ",
                                                     options.origin[axis], ": must be finite"));
    }
  }
  if (options.batch < 0 || options.batch > kMaxBatchIndex) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch index = ", options.batch, ": allowed are 0 to ", kMaxBatchIndex));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<KeyedPoint>> SortedPoints(const PointCloud& cloud,
                                                     const VoxelizeOptions& options) {
  std::vector<KeyedPoint> keyed(static_cast<size_t>(cloud.size()));
  for (size_t i = 0; i < keyed.size(); ++i) {
    uint64_t key = 0;
    for (size_t axis = 0; axis < 3; ++axis) {
      const double position = cloud.xyz[3 * i + axis];
      const double voxel = std::floor((position - options.origin[axis]) / options.size[axis]);
      if (!(voxel >= kMinVoxelCoordinate && voxel <= kMaxVoxelCoordinate)) {
        return absl::OutOfRangeError(absl::StrCat(
            "point ", i, ": ", kAxisNames[axis], " = ", position, " falls into voxel ", voxel,
            " at size ", options.size[axis], "; allowed are ", kMinVoxelCoordinate, " to ",
            kMaxVoxelCoordinate, ": use a larger voxel size or another origin"));
      }
      const int64_t biased = static_cast<int64_t>(voxel) - kMinVoxelCoordinate;
      key = (key << kAxisBits) | static_cast<uint64_t>(biased);
    }
    keyed[i] = {key, static_cast<int64_t>(i)};
  }
  std::sort(keyed.begin(), keyed.end());
  return keyed;
}

std::array<int32_t, 4> CoordinatesOf(uint64_t key, int32_t batch) {
  const auto axis = [&](int shift) {
    return static_cast<int32_t>((key >> shift) & kAxisMask) + kMinVoxelCoordinate;
  };
  return {batch, axis(2 * kAxisBits), axis(kAxisBits), axis(0)};
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

absl::StatusOr<VoxelizedCloud> Voxelize(const PointCloud& cloud, const VoxelizeOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  if (absl::Status status = ValidatePointCloud(cloud); !status.ok()) return status;
  const absl::StatusOr<std::vector<KeyedPoint>> keyed = SortedPoints(cloud, options);
  if (!keyed.ok()) return keyed.status();
  VoxelizedCloud out;
  out.points = cloud.size();
  out.dropped = cloud.dropped;
  if (options.xyz_features) out.names = {"x", "y", "z"};
  out.names.insert(out.names.end(), cloud.feature_names.begin(), cloud.feature_names.end());
  out.channels = static_cast<int>(out.names.size());
  std::vector<double> sums(out.names.size());
  for (auto begin = keyed->begin(); begin != keyed->end();) {
    std::fill(sums.begin(), sums.end(), 0.0);
    auto end = begin;
    for (; end != keyed->end() && end->key == begin->key; ++end) {
      Accumulate(cloud, end->point, options.xyz_features, sums);
    }
    const double count = static_cast<double>(end - begin);
    for (const double sum : sums) out.features.push_back(static_cast<float>(sum / count));
    out.coords.push_back(CoordinatesOf(begin->key, options.batch));
    begin = end;
  }
  return out;
}

absl::StatusOr<CoordinateSetPtr> MakeCoordinates(const VoxelizedCloud& cloud,
                                                 const ExecutionContext& context) {
  std::vector<Coordinate> rows;
  rows.reserve(cloud.coords.size());
  for (const auto& c : cloud.coords) rows.push_back({c[0], c[1], c[2], c[3]});
  return CoordinateSet::Create(rows, {1, 1, 1}, context);
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
