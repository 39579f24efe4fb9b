// SPDX-License-Identifier: Apache-2.0
// Features of voxels back to points on every backend: values, gradients, and that a gradient is the
// transpose.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "voxel_ops_test_util.h"

namespace voxconv {
namespace {

using ::testing::HasSubstr;

class DevoxelizeOpTest : public VoxelOpsTest {
 protected:
  std::vector<float> Values(int64_t size, uint64_t seed) {
    Random random(seed);
    std::vector<float> values(size);
    for (float& value : values) value = static_cast<float>(random.Uniform(-1, 1));
    return values;
  }
  Tensor Make(const std::vector<float>& values, int64_t rows) {
    const int64_t channels = rows == 0 ? 0 : static_cast<int64_t>(values.size()) / rows;
    return *Tensor::FromHost(values, rows, channels, context_);
  }
  std::vector<float> Devoxelize(const PointMapView& map, const std::vector<float>& x,
                                int64_t channels) {
    const Tensor y = *Tensor::Create(map.points, channels, DType::kF32, context_);
    const Tensor from = *Tensor::FromHost(x, map.voxels, channels, context_);
    const absl::Status status = ops().Devoxelize(map, from.view(), y.view(), context_);
    EXPECT_TRUE(status.ok()) << status;
    return *y.ToHost(context_);
  }
  std::vector<float> Gradient(const PointMapView& map, const std::vector<float>& dy,
                              int64_t channels) {
    const Tensor dx = *Tensor::Create(map.voxels, channels, DType::kF32, context_);
    const Tensor from = *Tensor::FromHost(dy, map.points, channels, context_);
    const absl::Status status = ops().DevoxelizeGrad(map, from.view(), dx.view(), context_);
    EXPECT_TRUE(status.ok()) << status;
    return *dx.ToHost(context_);
  }
  // <dy, A x> = <transposed(A) dy, x>, to the rounding of the sums.
  void ExpectAdjoint(const PointMapView& map, int64_t channels) {
    const std::vector<float> x = Values(map.voxels * channels, 2);
    const std::vector<float> dy = Values(map.points * channels, 3);
    const std::vector<float> y = Devoxelize(map, x, channels), dx = Gradient(map, dy, channels);
    double forward = 0, backward = 0, size = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      forward += double{dy[i]} * y[i];
      size += std::abs(double{dy[i]} * y[i]);
    }
    for (size_t i = 0; i < x.size(); ++i) backward += double{dx[i]} * x[i];
    EXPECT_NEAR(forward, backward, 1e-6 * size + 1e-12);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(Devoxelize(map, x, channels) == y);
      ASSERT_TRUE(Gradient(map, dy, channels) == dx);
    }
  }
};

TEST_P(DevoxelizeOpTest, NearestReadsThePointsVoxel) {
  for (const int64_t count : {0, 1, 700, 20'000}) {
    for (const int64_t channels : {1, 5, 32}) {
      VoxelOptions options;
      options.size = {0.2, 0.2, 0.2};
      options.low = {-0.9, -2, -2};  // some points have no voxel
      options.high = {2, 2, 2};
      options.max_points = 2;  // which does not change what a point reads
      const Placed points = Place(RandomPoints(count, 4, 1));
      const PointVoxels voxels = *ops().Voxelize(points.values.view(), nullptr, options, context_);
      const VoxelSummary summary = *CollectVoxels(voxels, context_);
      const PointMapView map = NearestMap(voxels, summary.voxels);
      const std::vector<int32_t> rows = *CopyToHost(voxels.voxel_of_point, context_);
      const std::vector<float> x = Values(summary.voxels * channels, 5);
      const std::vector<float> y = Devoxelize(map, x, channels);
      const std::vector<float> dy = Values(count * channels, 6);
      std::vector<double> dx(x.size(), 0.0);
      for (int64_t p = 0; p < count; ++p) {
        for (int64_t c = 0; c < channels; ++c) {
          const float expected = rows[p] < 0 ? 0.0f : x[rows[p] * channels + c];
          ASSERT_EQ(y[p * channels + c], expected);
          if (rows[p] >= 0) dx[rows[p] * channels + c] += dy[p * channels + c];
        }
      }
      EXPECT_EQ(Gradient(map, dy, channels), std::vector<float>(dx.begin(), dx.end()));
      ExpectAdjoint(map, channels);
    }
  }
}

// Of a voxel's centre it is the voxel's value, and between two centres the mean.
TEST_P(DevoxelizeOpTest, TrilinearBetweenCentres) {
  const std::vector<Coordinate> coords{{0, 0, 0, 0}, {0, 1, 0, 0}, {0, 5, 5, 5}};
  const CoordinateSetPtr set = *CoordinateSet::Create(coords, {1, 1, 1}, context_);
  VoxelOptions options;
  options.size = {2, 2, 2};
  options.origin = {-1, -1, -1};  // centres are at 0, 2, ...
  const Placed points = Place({.values = {0,    0,    0,    2,  0, 0, 1,   0, 0,  //
                                          0.5f, 0.5f, 0.5f, -1, 0, 0,  // one has no neighbour
                                          10,   10,   9,    30, 0, 0, NAN, 0, 0, 3e38f, 0, 0}});
  const PointMap map = *ops().Interpolate(points.values.view(), nullptr, options, *set, context_);
  EXPECT_EQ(map.view.voxels, 3);
  const std::vector<float> y = Devoxelize(map.view, {8, 16, 1}, 1);
  EXPECT_THAT(y, ::testing::ElementsAre(8, 16, 12, 10, 8, 1, 0, 0, 0));
}

// Against weights that are found by comparing each point with each voxel.
TEST_P(DevoxelizeOpTest, TrilinearIsTheBruteForces) {
  constexpr int64_t kChannels = 3;
  for (const int32_t stride : {1, 2, 4}) {
    Random random(stride);
    std::vector<Coordinate> coords;
    for (int32_t i = 0; i < 512; ++i) {
      if (random.Below(3) == 0) continue;
      coords.push_back(
          {i % 2, (i / 2 % 4 - 2) * stride, (i / 8 % 8 - 4) * stride, (i / 64 - 4) * stride});
    }
    const CoordinateSetPtr set = *CoordinateSet::Create(coords, {stride, stride, stride}, context_);
    VoxelOptions options;
    options.size = {0.1, 0.2, 0.3};
    options.origin = {0.01, 0, -0.02};
    Points cloud = RandomPoints(300, 3, 0.5 * stride, 8);
    for (int64_t i = 0; i < cloud.size(); ++i) cloud.batches.push_back(i % 3);
    const Placed points = Place(cloud);
    const PointMap map =
        *ops().Interpolate(points.values.view(), points.batch_data(), options, *set, context_);
    const std::vector<float> x = Values(set->size() * kChannels, 4);
    const std::vector<float> y = Devoxelize(map.view, x, kChannels);
    for (int64_t p = 0; p < cloud.size(); ++p) {
      std::array<double, kChannels> expected{};
      double sum = 0;
      for (size_t v = 0; v < coords.size(); ++v) {
        if (coords[v].b != cloud.batches[p]) continue;
        double weight = 1;
        for (int axis = 0; axis < 3; ++axis) {
          const double place =
              (cloud.values[3 * p + axis] - options.origin[axis]) / options.size[axis] / stride;
          const int32_t cell = coords[v].position()[axis] / stride;
          const double centre = cell + 0.5;
          weight *= std::max(0.0, 1.0 - std::abs(place - centre));
        }
        sum += weight;
        for (int64_t c = 0; c < kChannels; ++c) expected[c] += weight * x[v * kChannels + c];
      }
      for (int64_t c = 0; c < kChannels; ++c) {
        ASSERT_NEAR(y[p * kChannels + c], sum > 0 ? expected[c] / sum : 0, 2e-6);
      }
    }
    ExpectAdjoint(map.view, kChannels);
  }
}

// So a network reads what it wrote: at the stride of its voxels and for samples of a batch.
TEST_P(DevoxelizeOpTest, TrilinearOfAClouds) {
  VoxelOptions options;
  options.size = {0.05, 0.05, 0.05};
  const Placed points = Place(RandomPoints(30'000, 4, 1));
  PointVoxels voxels = *ops().Voxelize(points.values.view(), nullptr, options, context_);
  const SparseTensorView view = *TakeVoxels(voxels, context_);
  const PointMap map =
      *ops().Interpolate(points.values.view(), nullptr, options, *view.coordinates, context_);
  ExpectAdjoint(map.view, 8);
  // A point's own voxel is among its neighbours, so that constants stay.
  const std::vector<float> ones(map.view.voxels, 1.0f);
  for (const float value : Devoxelize(map.view, ones, 1)) ASSERT_NEAR(value, 1, 1e-6);
}

TEST_P(DevoxelizeOpTest, EmptySets) {
  VoxelOptions options;
  const CoordinateSetPtr none = *CoordinateSet::Create({}, {1, 1, 1}, context_);
  const CoordinateSetPtr one =
      *CoordinateSet::Create(std::vector<Coordinate>{{0, 0, 0, 0}}, {1, 1, 1}, context_);
  const Placed points = Place(RandomPoints(5, 3, 1)), nothing = Place({});
  const PointMap to_none =
      *ops().Interpolate(points.values.view(), nullptr, options, *none, context_);
  EXPECT_EQ(Devoxelize(to_none.view, {}, 2), std::vector<float>(10, 0.0f));
  EXPECT_TRUE(Gradient(to_none.view, std::vector<float>(10, 1.0f), 2).empty());
  const PointMap of_nothing =
      *ops().Interpolate(nothing.values.view(), nullptr, options, *one, context_);
  EXPECT_EQ(Gradient(of_nothing.view, {}, 2), std::vector<float>(2, 0.0f));
}

// The box of all coordinates has 2^63 cells, over all samples.
TEST_P(DevoxelizeOpTest, SortsVoxelsOfTheLargestBox) {
  constexpr int32_t kLo = kMinCoordinate, kHi = kMaxCoordinate;
  const std::vector<Coordinate> expected = {{0, kLo, kLo, kLo},
                                            {0, kLo, kLo, kLo + 1},
                                            {0, kHi, 0, 7},
                                            {1, kLo, kHi, kHi},
                                            {255, 0, 0, 0},
                                            {256, kLo, kLo, kLo},
                                            {kMaxBatch, kLo, kLo, kHi},
                                            {kMaxBatch, kHi, kHi, kHi - 1},
                                            {kMaxBatch, kHi, kHi, kHi}};
  const std::vector<Coordinate> rows(expected.rbegin(), expected.rend());
  const CoordinateSetPtr set = *CoordinateSet::Create(rows, {1, 1, 1}, context_);
  const auto sorted = ops().Sort(*set, context_);
  ASSERT_TRUE(sorted.ok()) << sorted.status();
  EXPECT_EQ(*CopyToHost(sorted->set->rows(), context_), expected);
}

// Few cells and many, so that keys take one word or two; samples in turn; nothing and one.
TEST_P(DevoxelizeOpTest, SortsVoxels) {
  std::mt19937 random(5);
  for (const int32_t edge : {3, 40, 100000}) {
    std::set<Coordinate> distinct;
    std::uniform_int_distribution<int32_t> place(-edge, edge), batch(0, 2);
    while (distinct.size() < (edge == 3 ? 100u : 5000u)) {
      distinct.insert({batch(random), place(random), place(random), place(random)});
    }
    std::vector<Coordinate> rows(distinct.begin(), distinct.end());
    const std::vector<Coordinate> expected = rows;
    std::shuffle(rows.begin(), rows.end(), random);
    const CoordinateSetPtr set = *CoordinateSet::Create(rows, {1, 1, 1}, context_);
    const auto sorted = ops().Sort(*set, context_);
    ASSERT_TRUE(sorted.ok()) << sorted.status();
    EXPECT_EQ(*CopyToHost(sorted->set->rows(), context_), expected);
    EXPECT_TRUE(sorted->set->sorted());
    EXPECT_EQ(sorted->set->num_batches(), set->num_batches());
    const std::vector<int32_t> given = *CopyToHost(sorted->given, context_);
    const std::vector<int32_t> position = *CopyToHost(sorted->position, context_);
    std::vector<float> values(rows.size()), values_in_order(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(rows[given[i]], expected[i]);
      ASSERT_EQ(position[given[i]], static_cast<int32_t>(i));
      values[i] = static_cast<float>(i);
    }
    for (size_t i = 0; i < rows.size(); ++i) values_in_order[i] = values[given[i]];
    EXPECT_EQ(Devoxelize(sorted->to_sorted(), values, 1), values_in_order);
    EXPECT_EQ(Devoxelize(sorted->to_given(), values_in_order, 1), values);
  }
  for (const std::vector<Coordinate>& few :
       {std::vector<Coordinate>{}, std::vector<Coordinate>{{3, -1, 2, 5}}}) {
    const CoordinateSetPtr set = *CoordinateSet::Create(few, {1, 1, 1}, context_);
    const auto sorted = ops().Sort(*set, context_);
    ASSERT_TRUE(sorted.ok()) << sorted.status();
    EXPECT_EQ(*CopyToHost(sorted->set->rows(), context_), few);
  }
}

TEST_P(DevoxelizeOpTest, RefusesArgumentsByName) {
  const Placed points = Place(RandomPoints(50, 3, 1));
  const PointVoxels voxels = *ops().Voxelize(points.values.view(), nullptr, {}, context_);
  const VoxelSummary summary = *CollectVoxels(voxels, context_);
  const PointMapView map = NearestMap(voxels, summary.voxels);
  const Tensor y = Make(std::vector<float>(100), 50), few = Make(std::vector<float>(2), 1);
  EXPECT_THAT(std::string(ops().Devoxelize(map, few.view(), y.view(), context_).message()),
              HasSubstr("devoxelize: features of voxels"));
  EXPECT_THAT(
      std::string(ops()
                      .DevoxelizeGrad({.points = 3, .voxels = 1}, y.view(), few.view(), context_)
                      .message()),
      HasSubstr("devoxelize_grad: map: null arrays"));
  VoxelOptions flat;
  flat.size[2] = 0;
  const CoordinateSetPtr none = *CoordinateSet::Create({}, {1, 1, 1}, context_);
  EXPECT_THAT(std::string(ops()
                              .Interpolate(points.values.view(), nullptr, flat, *none, context_)
                              .status()
                              .message()),
              HasSubstr("voxel size along z = 0"));
}

VOXCONV_ON_EVERY_BACKEND(DevoxelizeOpTest);

}  // namespace
}  // namespace voxconv
