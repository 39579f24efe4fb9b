// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/voxelize.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/voxel_ops.h"

namespace voxconv {
namespace {

// The voxels of a cloud in the order of their first points.
struct FoundVoxels {
  std::vector<Coordinate> coords;  // [V]
  std::vector<int64_t> of_point;   // [N], rows of `coords`
};

VoxelQuotient QuotientOfRule(VoxelRule rule) {
  return rule == VoxelRule::kSpconv ? VoxelQuotient::kF32 : VoxelQuotient::kF64;
}

absl::Status CheckOptions(const VoxelizeOptions& options) {
  VOXCONV_RETURN_IF_ERROR(
      CheckVoxelSize(options.size, options.origin, QuotientOfRule(options.rule)));
  if (options.batch < 0 || options.batch > kMaxBatch) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch index = ", options.batch, ": allowed are 0 to ", kMaxBatch));
  }
  return absl::OkStatus();
}

absl::StatusOr<FoundVoxels> FindVoxels(const PointCloud& cloud, const VoxelizeOptions& options) {
  const VoxelQuotient quotient = QuotientOfRule(options.rule);
  FoundVoxels found;
  found.of_point.resize(static_cast<size_t>(cloud.size()));
  absl::flat_hash_map<uint64_t, int64_t> rows;  // by PackKey
  constexpr size_t kFrame = size_t{1} << 20;    // larger clouds have fewer voxels than points
  rows.reserve(std::min(found.of_point.size(), kFrame));
  for (size_t i = 0; i < found.of_point.size(); ++i) {
    Coordinate voxel{.b = options.batch};
    int32_t* const axes[3] = {&voxel.x, &voxel.y, &voxel.z};
    for (int axis = 0; axis < 3; ++axis) {
      const double position = cloud.xyz[3 * i + axis];
      const double place = QuotientOf(quotient, position, options.origin[axis], options.size[axis]);
      if (!IsCoordinate(place)) {
        return NoCoordinate(static_cast<int64_t>(i), axis, position, place, options.size[axis]);
      }
      *axes[axis] = FloorOf(place);
    }
    const auto [row, is_new] =
        rows.try_emplace(PackKey(voxel), static_cast<int64_t>(found.coords.size()));
    if (is_new) found.coords.push_back(voxel);
    found.of_point[i] = row->second;
  }
  return found;
}

// Adds one point's features (its position first, if asked for) to the voxel's sums.
void Accumulate(const PointCloud& cloud, size_t point, bool xyz_features, double* sums) {
  if (xyz_features) {
    for (size_t axis = 0; axis < 3; ++axis) *sums++ += cloud.xyz[3 * point + axis];
  }
  const float* row = cloud.features.data() + static_cast<int64_t>(point) * cloud.channels();
  for (int64_t i = 0; i < cloud.channels(); ++i) *sums++ += row[i];
}

// [V, channels]: the means of each voxel's points, or those of its first point.
std::vector<float> FeaturesOf(const PointCloud& cloud, const VoxelizeOptions& options,
                              const FoundVoxels& found, size_t channels) {
  const bool first_alone = options.rule == VoxelRule::kSpconv;
  std::vector<double> sums(found.coords.size() * channels);
  std::vector<int64_t> counts(found.coords.size());
  for (size_t i = 0; i < found.of_point.size(); ++i) {
    const int64_t row = found.of_point[i];
    if (first_alone && counts[row] == 1) continue;
    ++counts[row];
    Accumulate(cloud, i, options.xyz_features, sums.data() + row * channels);
  }
  std::vector<float> features(sums.size());
  for (size_t i = 0; i < features.size(); ++i) {
    features[i] = static_cast<float>(sums[i] / static_cast<double>(counts[i / channels]));
  }
  return features;
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
  absl::StatusOr<FoundVoxels> found = FindVoxels(cloud, options);
  if (!found.ok()) return found.status();
  VoxelizedCloud out;
  out.points = cloud.size();
  out.dropped = cloud.dropped;
  out.cropped = cloud.cropped;
  out.from_mesh = cloud.from_mesh;
  if (options.xyz_features) out.names = {"x", "y", "z"};
  out.names.insert(out.names.end(), cloud.feature_names.begin(), cloud.feature_names.end());
  out.channels = static_cast<int>(out.names.size());
  out.features = FeaturesOf(cloud, options, *found, out.names.size());
  out.coords = std::move(found->coords);
  PutInOrder(options.order, options.order_seed, out, &found->of_point);
  if (voxel_of_point != nullptr) *voxel_of_point = std::move(found->of_point);
  return out;
}

void PutInOrder(RowOrder order, uint64_t seed, VoxelizedCloud& cloud,
                std::vector<int64_t>* voxel_of_point) {
  cloud.order = order;
  if (order == RowOrder::kScan) return;
  const std::vector<int64_t> rows = OrderRows(cloud.coords, order, seed);
  std::vector<Coordinate> coords;
  std::vector<float> features;
  std::vector<int64_t> place(rows.size());  // of each former row
  coords.reserve(rows.size());
  features.reserve(cloud.features.size());
  for (const int64_t row : rows) {
    place[row] = static_cast<int64_t>(coords.size());
    coords.push_back(cloud.coords[row]);
    const auto begin = cloud.features.begin() + row * cloud.channels;
    features.insert(features.end(), begin, begin + cloud.channels);
  }
  cloud.coords = std::move(coords);
  cloud.features = std::move(features);
  if (voxel_of_point == nullptr) return;
  for (int64_t& row : *voxel_of_point) row = place[row];
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
