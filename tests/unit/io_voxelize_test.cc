// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_set>

#include "io_test_util.h"
#include "voxconv/core/random.h"
#include "voxconv/io/voxelize.h"

namespace voxconv {

int64_t CountNeighbourPairs(const VoxelizedCloud& cloud) {
  std::unordered_set<int64_t> present;
  const auto key = [](int64_t x, int64_t y, int64_t z) {
    constexpr int64_t kBias = 1 << 18;
    return ((x + kBias) << 40) | ((y + kBias) << 20) | (z + kBias);
  };
  for (const auto& [b, x, y, z] : cloud.coords) present.insert(key(x, y, z));
  int64_t pairs = 0;
  for (const auto& coord : cloud.coords) {
    for (int offset = 0; offset < 27; ++offset) {
      pairs += static_cast<int64_t>(present.count(
          key(coord.x + offset / 9 - 1, coord.y + offset / 3 % 3 - 1, coord.z + offset % 3 - 1)));
    }
  }
  return pairs;
}

namespace {

using testing::ElementsAre;

PointCloud Points(std::vector<double> xyz) {
  PointCloud cloud;
  cloud.xyz = std::move(xyz);
  return cloud;
}

VoxelizeOptions Size(double size) {
  VoxelizeOptions options;
  options.size = {size, size, size};
  return options;
}

TEST(Voxelize, FloorsSortsAndAverages) {
  PointCloud cloud = Points({1.5, 0.5, 0.5, -0.5, 0.5, 0.5, 1.25, 0.25, 0.75});
  cloud.features = {10, 20, 30};
  cloud.feature_names = {"intensity"};
  VoxelizeOptions options = Size(1);
  options.batch = 3;
  options.order = RowOrder::kSorted;
  const absl::StatusOr<VoxelizedCloud> voxels = Voxelize(cloud, options);
  ASSERT_TRUE(voxels.ok()) << voxels.status();
  EXPECT_THAT(voxels->coords, ElementsAre(Coordinate{3, -1, 0, 0}, Coordinate{3, 1, 0, 0}));
  EXPECT_THAT(voxels->names, ElementsAre("x", "y", "z", "intensity"));
  EXPECT_EQ(voxels->channels, 4);
  EXPECT_EQ(voxels->points, 3);
  EXPECT_THAT(voxels->features, ElementsAre(-0.5, 0.5, 0.5, 20, 1.375, 0.375, 0.625, 20));
  options.xyz_features = false;
  EXPECT_THAT(Voxelize(cloud, options)->features, ElementsAre(20, 20));
  options.order = RowOrder::kScan;
  EXPECT_THAT(Voxelize(cloud, options)->coords,
              ElementsAre(Coordinate{3, 1, 0, 0}, Coordinate{3, -1, 0, 0}));
}

TEST(Voxelize, SizesPerAxisAndOrigin) {
  VoxelizeOptions options;
  options.size = {1, 2, 0.5};
  options.origin = {-10, 1, 0};
  EXPECT_THAT(Voxelize(Points({0.5, 0.5, 0.5}), options)->coords,
              ElementsAre(Coordinate{0, 10, -1, 1}));
}

TEST(Voxelize, EmptyAndChannelless) {
  const absl::StatusOr<VoxelizedCloud> none = Voxelize(PointCloud{}, Size(1));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->size(), 0);
  EXPECT_EQ(none->channels, 3);
  VoxelizeOptions bare = Size(1);
  bare.xyz_features = false;
  EXPECT_EQ(Voxelize(Points({1, 2, 3}), bare)->channels, 0);
}

TEST(Voxelize, RangeIsEighteenBits) {
  EXPECT_THAT(Voxelize(Points({-131072, 131071, 0}), Size(1))->coords,
              ElementsAre(Coordinate{0, -131072, 131071, 0}));
  EXPECT_THAT(Voxelize(Points({0, 131072, 0}), Size(1)),
              FailsWith(kOutOfRange, "y = 131072 falls into voxel 131072"));
  EXPECT_THAT(Voxelize(Points({0, 0, -131072.5}), Size(1)),
              FailsWith(kOutOfRange, "allowed are -131072 to 131071"));
  EXPECT_THAT(Voxelize(Points({1e300, 0, 0}), Size(1e-300)), FailsWith(kOutOfRange, "x = 1e+300"));
  EXPECT_THAT(Voxelize(Points({0, NAN, 0}), Size(1)), FailsWith(kOutOfRange, "y = nan"));
}

TEST(Voxelize, RefusesOptionsByName) {
  const PointCloud cloud = Points({0, 0, 0});
  for (const double size : {0.0, -0.05, std::numeric_limits<double>::infinity(), double{NAN}}) {
    VoxelizeOptions options;
    options.size[1] = size;
    EXPECT_THAT(Voxelize(cloud, options), FailsWith(kInvalid, "voxel size along y"));
  }
  VoxelizeOptions origin;
  origin.origin[2] = NAN;
  EXPECT_THAT(Voxelize(cloud, origin), FailsWith(kInvalid, "origin along z"));
  VoxelizeOptions batch;
  batch.batch = 512;
  EXPECT_THAT(Voxelize(cloud, batch), FailsWith(kInvalid, "batch index = 512"));
  PointCloud torn = cloud;
  torn.feature_names = {"intensity"};
  EXPECT_THAT(Voxelize(torn, Size(1)), FailsWith(kInvalid, "expected 1 points x 1 channels"));
}

TEST(Voxelize, CoordinatesDoNotDependOnTheOrderOfPoints) {
  Random random(1);
  std::vector<std::array<double, 3>> rows(20'000);
  for (auto& row : rows) {
    for (double& value : row) value = random.Uniform(-2, 2);
  }
  const auto voxelize = [&] {
    PointCloud cloud;
    for (const auto& row : rows) cloud.xyz.insert(cloud.xyz.end(), row.begin(), row.end());
    VoxelizeOptions options = Size(0.1);
    options.order = RowOrder::kSorted;
    return *Voxelize(cloud, options);
  };
  const VoxelizedCloud first = voxelize();
  EXPECT_EQ(Checksum(voxelize()), Checksum(first));
  EXPECT_TRUE(std::is_sorted(first.coords.begin(), first.coords.end()));
  std::reverse(rows.begin(), rows.end());
  EXPECT_EQ(voxelize().coords, first.coords);
}

// Points of which many share a voxel, on both sides of 0, with a feature that tells them apart.
PointCloud ManyPoints() {
  Random random(2);
  PointCloud cloud;
  cloud.feature_names = {"number"};
  for (int i = 0; i < 3000; ++i) {
    for (int axis = 0; axis < 3; ++axis) cloud.xyz.push_back(random.Uniform(-4, 4));
    cloud.features.push_back(static_cast<float>(i));
  }
  return cloud;
}

TEST(Voxelize, RowsOfAScanComeAsTheirFirstPoints) {
  const PointCloud cloud = ManyPoints();
  std::vector<int64_t> voxel_of_point;
  const auto voxels = Voxelize(cloud, Size(1), &voxel_of_point);
  ASSERT_TRUE(voxels.ok()) << voxels.status();
  EXPECT_EQ(voxels->order, RowOrder::kScan);
  ASSERT_EQ(voxel_of_point.size(), 3000);
  int64_t rows = 0;
  for (const int64_t row : voxel_of_point) {
    ASSERT_LE(row, rows);
    if (row == rows) ++rows;
  }
  EXPECT_EQ(rows, voxels->size());
  EXPECT_FALSE(std::is_sorted(voxels->coords.begin(), voxels->coords.end()));
}

TEST(Voxelize, EveryOrderHasTheSameVoxelsWithTheSameFeatures) {
  const PointCloud cloud = ManyPoints();
  std::map<Coordinate, std::vector<float>> expected;
  for (const RowOrder order :
       {RowOrder::kScan, RowOrder::kSorted, RowOrder::kShuffled, RowOrder::kMorton}) {
    VoxelizeOptions options = Size(1);
    options.order = order;
    std::vector<int64_t> voxel_of_point;
    const auto voxels = Voxelize(cloud, options, &voxel_of_point);
    ASSERT_TRUE(voxels.ok()) << voxels.status();
    EXPECT_EQ(voxels->order, order);
    std::map<Coordinate, std::vector<float>> found;
    for (size_t row = 0; row < voxels->coords.size(); ++row) {
      const float* features = voxels->features.data() + 4 * row;
      found[voxels->coords[row]] = {features, features + 4};
    }
    if (order == RowOrder::kScan) expected = found;
    EXPECT_EQ(found, expected) << ToString(order);
    for (size_t i = 0; i < voxel_of_point.size(); ++i) {
      Coordinate voxel{};
      voxel.x = static_cast<int32_t>(std::floor(cloud.xyz[3 * i]));
      voxel.y = static_cast<int32_t>(std::floor(cloud.xyz[3 * i + 1]));
      voxel.z = static_cast<int32_t>(std::floor(cloud.xyz[3 * i + 2]));
      ASSERT_EQ(voxels->coords[voxel_of_point[i]], voxel) << ToString(order) << " point " << i;
    }
  }
}

// PointToVoxel as its documentation has it, one point after the other: float32 throughout, a
// voxel's features are those of its first point. Voxels come in the order of `order`.
std::map<std::array<int, 3>, std::vector<float>> PointToVoxel(const std::vector<float>& xyz,
                                                              const std::vector<float>& features,
                                                              float size, const float* low,
                                                              std::vector<Coordinate>& order) {
  std::map<std::array<int, 3>, std::vector<float>> voxels;
  for (size_t i = 0; i < features.size(); ++i) {
    std::array<int, 3> voxel;
    for (int axis = 0; axis < 3; ++axis) {
      volatile float offset = xyz[3 * i + axis] - low[axis];  // no wider intermediate result
      volatile float quotient = offset / size;
      voxel[axis] = static_cast<int>(std::floor(quotient));
    }
    const bool is_new = voxels
                            .try_emplace(voxel, std::vector<float>{xyz[3 * i], xyz[3 * i + 1],
                                                                   xyz[3 * i + 2], features[i]})
                            .second;
    if (is_new) order.push_back({0, voxel[0], voxel[1], voxel[2]});
  }
  return voxels;
}

TEST(Voxelize, SpconvsRuleIsExact) {
  const float low[3] = {-51.2f, -51.2f, -5.0f};
  Random random(7);
  std::vector<float> xyz, features;
  for (int i = 0; i < 200'000; ++i) {
    // Half of them on edges of voxels, where float32 and float64 divide differently.
    const bool edge = i % 2 == 0;
    for (int axis = 0; axis < 3; ++axis) {
      const double cell = edge ? static_cast<double>(random.Below(1000)) : 1000 * random.Uniform();
      xyz.push_back(static_cast<float>(low[axis] + 0.1 * cell));
    }
    features.push_back(static_cast<float>(i));
  }
  PointCloud cloud = Points({xyz.begin(), xyz.end()});
  cloud.features = features;
  cloud.feature_names = {"number"};
  VoxelizeOptions options = Size(0.1);
  options.origin = {-51.2, -51.2, -5};
  options.rule = VoxelRule::kSpconv;
  const auto voxels = Voxelize(cloud, options);
  ASSERT_TRUE(voxels.ok()) << voxels.status();
  std::vector<Coordinate> order;
  const auto expected = PointToVoxel(xyz, features, 0.1f, low, order);
  ASSERT_EQ(voxels->coords, order);
  for (size_t at = 0; at < order.size(); ++at) {
    const std::vector<float>& row = expected.at({order[at].x, order[at].y, order[at].z});
    for (size_t c = 0; c < 4; ++c) ASSERT_EQ(voxels->features[4 * at + c], row[c]);
  }
  options.rule = VoxelRule::kF64;
  EXPECT_NE(Voxelize(cloud, options)->coords, voxels->coords);
}

TEST(Voxelize, RulesByName) {
  EXPECT_EQ(*ParseVoxelRule("f64"), VoxelRule::kF64);
  EXPECT_EQ(*ParseVoxelRule("spconv"), VoxelRule::kSpconv);
  EXPECT_THAT(ParseVoxelRule("f32"), FailsWith(kInvalid, "'f32': allowed are f64 and spconv"));
  VoxelizeOptions options = Size(1e-60);
  options.rule = VoxelRule::kSpconv;
  EXPECT_THAT(Voxelize(Points({1, 2, 3}), options), FailsWith(kInvalid, "within float32"));
}

TEST(Voxelize, SaysWhatChannelsChange) {
  PointCloud cloud = Points({1, 2, 3});
  cloud.features = {0.5, 31};
  cloud.feature_names = {"intensity", "ring"};
  const auto voxels = Voxelize(cloud, Size(1));
  ASSERT_TRUE(voxels.ok());
  EXPECT_EQ(DescribeChannels(*voxels, 5), "");
  EXPECT_EQ(
      DescribeChannels(*voxels, 4),
      "the input has 5 features (x, y, z, intensity, ring), the network takes 4: ring is left "
      "out");
  EXPECT_EQ(DescribeChannels(*voxels, 3),
            "the input has 5 features (x, y, z, intensity, ring), the network takes 3: intensity, "
            "ring are left out");
  EXPECT_EQ(DescribeChannels(*voxels, 7),
            "the input has 5 features (x, y, z, intensity, ring), the network takes 7: the last 2 "
            "are filled with ones");
}

}  // namespace
}  // namespace voxconv
