// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "voxconv/reference_cpu/convolution.h"
#include "voxconv/reference_cpu/geometry.h"
#include "voxconv/reference_cpu/kernel_map.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/reference_cpu/pooling.h"

namespace voxconv::reference {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A layer along x only, so that its windows can be written down by hand.
Geometry StridedAlongX(int64_t kernel, int64_t stride, Rule rule = Rule::kQuantize) {
  return {.kind = Kind::kStrided, .rule = rule, .kernel = {kernel, 1, 1}, .stride = {stride, 1, 1}};
}

std::vector<Coord> AlongX(const std::vector<int32_t>& positions) {
  std::vector<Coord> coords;
  for (const int32_t x : positions) coords.push_back({.b = 0, .x = x});
  return coords;
}

KernelMap MapOf(const std::vector<Coord>& inputs, const Geometry& g) {
  return BuildKernelMap(inputs, OutputCoordinates(inputs, g), g);
}

TEST(KernelOffsetsTest, OrderIsXSlowestAndParitySetsTheOrigin) {
  const Geometry g = {.kernel = {3, 1, 2}, .dilation = {2, 1, 3}, .tensor_stride = {4, 4, 4}};
  EXPECT_THAT(KernelOffsets(g), ElementsAre(Vec3{-2, 0, 0}, Vec3{-2, 0, 3}, Vec3{0, 0, 0},
                                            Vec3{0, 0, 3}, Vec3{2, 0, 0}, Vec3{2, 0, 3}));
}

TEST(OutputCoordinatesTest, QuantizeFloorsNegatives) {
  EXPECT_EQ(OutputCoordinates(AlongX({1, -1, -2, -3, 0}), StridedAlongX(2, 2)),
            AlongX({-4, -2, 0}));
}

TEST(OutputCoordinatesTest, QuantizeKeepsOutputsWithoutPairs) {
  const Geometry g = StridedAlongX(1, 2);
  EXPECT_EQ(OutputCoordinates(AlongX({1}), g), AlongX({0}));
  EXPECT_THAT(MapOf(AlongX({1}), g).in, IsEmpty());
}

TEST(OutputCoordinatesTest, DilateTakesOnlyOutputsThatMeetAnInput) {
  EXPECT_EQ(OutputCoordinates(AlongX({1}), StridedAlongX(1, 2, Rule::kDilate)), AlongX({}));
  EXPECT_EQ(OutputCoordinates(AlongX({1}), StridedAlongX(3, 2, Rule::kDilate)), AlongX({0, 2}));
}

TEST(OutputCoordinatesTest, BatchComesFirstInTheOrder) {
  const std::vector<Coord> inputs = {{1, -5, 0, 0}, {0, 3, -1, 0}, {0, 3, -1, -7}, {0, -2, 9, 0}};
  const std::vector<Coord> sorted = {{0, -2, 9, 0}, {0, 3, -1, -7}, {0, 3, -1, 0}, {1, -5, 0, 0}};
  EXPECT_EQ(OutputCoordinates(inputs, StridedAlongX(1, 1)), sorted);
}

TEST(KernelMapTest, StridedMapByHand) {
  // Outputs at 0 and 2; row 1 sits at x = 0, row 0 at x = 3, row 2 at x = 1.
  const KernelMap map = MapOf(AlongX({3, 0, 1}), StridedAlongX(2, 2));
  EXPECT_EQ(map.num_offsets, 2);
  EXPECT_THAT(map.offset_ptr, ElementsAre(0, 1, 3));
  EXPECT_THAT(map.in, ElementsAre(1, 2, 0));
  EXPECT_THAT(map.out, ElementsAre(0, 0, 1));
  EXPECT_EQ(ReductionLength(map, 2, 5), 10);
}

TEST(KernelMapTest, NoInputsGiveAnEmptyMap) {
  for (const Kind kind : {Kind::kSubmanifold, Kind::kStrided, Kind::kTransposed}) {
    const KernelMap map = MapOf({}, {.kind = kind});
    EXPECT_EQ(map.num_offsets, 27);
    EXPECT_EQ(map.offset_ptr, std::vector<int64_t>(28, 0));
    EXPECT_THAT(Convolution(map, {0, 0, 1, 1}, {}, std::vector<double>(27, 1.0)), IsEmpty());
    EXPECT_EQ(ReductionLength(map, 0, 4), 0);
  }
}

TEST(KernelMapTest, NeighboursDoNotWrapAtTheIntegerLimits) {
  const Coord lowest = {0, std::numeric_limits<int32_t>::min(), 0, 0};
  const Coord highest = {0, std::numeric_limits<int32_t>::max(), 0, 0};
  EXPECT_EQ(MapOf({lowest, highest}, {.kind = Kind::kSubmanifold}).in.size(), 2u);
  EXPECT_THROW(OutputCoordinates({highest}, {.kind = Kind::kTransposed}), std::invalid_argument);
}

TEST(GeometryTest, RefusesWhatTheSemanticsExclude) {
  const auto refuses = [](const Geometry& g) {
    EXPECT_THROW(CheckGeometry(g), std::invalid_argument);
  };
  refuses({.kind = Kind::kSubmanifold, .stride = {1, 2, 1}});
  refuses({.kind = Kind::kSubmanifold, .padding = {0, 0, 1}});
  refuses({.kind = Kind::kStrided, .rule = Rule::kQuantize, .padding = {1, 1, 1}});
  refuses({.kind = Kind::kTransposed, .stride = {2, 2, 2}, .tensor_stride = {2, 3, 2}});
  refuses({.kind = Kind::kStrided, .kernel = {3, 0, 3}});
  refuses({.kind = Kind::kStrided, .bounds = Bounds{{0, 0, 0}, {1, 1, 1}}});
  EXPECT_NO_THROW(CheckGeometry({.kind = Kind::kStrided, .rule = Rule::kDilate, .padding = {-1}}));
}

TEST(KernelMapTest, RefusesBadCoordinates) {
  const Geometry g = {.kind = Kind::kSubmanifold, .tensor_stride = {2, 2, 2}};
  const std::vector<Coord> twice = AlongX({2, 2});
  const std::vector<Coord> off_lattice = AlongX({3});
  EXPECT_THROW(BuildKernelMap(twice, twice, g), std::invalid_argument);
  EXPECT_THROW(BuildKernelMap(off_lattice, off_lattice, g), std::invalid_argument);
  EXPECT_THROW(BuildKernelMap(AlongX({0, 2}), AlongX({2, 0}), g), std::invalid_argument);
}

TEST(ConvolutionTest, AddsTheBiasAndReadsWeightsByOffset) {
  const KernelMap map = MapOf(AlongX({3, 0, 1}), StridedAlongX(2, 2));
  const ConvShape shape = {.num_inputs = 3, .num_outputs = 2, .c_in = 1, .c_out = 2};
  const std::vector<float> x = {5, 2, 3};
  EXPECT_THAT(Convolution(map, shape, x, {1, 10, 100, 1000}, {0.5, 0.25}),
              ElementsAre(302.5, 3020.25, 500.5, 5000.25));
  EXPECT_THROW(Convolution(map, shape, {5, 2}, {1, 10, 100, 1000}), std::invalid_argument);
}

class PoolingTest : public testing::Test {
 protected:
  // Windows {0, 1} and {2, 3}, of which x = 2 is absent, then {6, 7} with x = 7
  // only; kernel offset 0 of the first window is row 2.
  const std::vector<Coord> inputs_ = AlongX({3, 1, 0, 7});
  const KernelMap map_ = MapOf(inputs_, StridedAlongX(2, 2));
  const PoolShape shape_ = {.num_inputs = 4, .num_outputs = 3, .channels = 2};
  const std::vector<float> x_ = {-3, 8, 4, 1, 4, -6, 5, -2};
};

TEST_F(PoolingTest, MaxPrefersTheLowestOffset) {
  const MaxPooled pooled = MaxPool(map_, shape_, x_);
  EXPECT_THAT(pooled.y, ElementsAre(4, 1, -3, 8, 5, -2));
  EXPECT_THAT(pooled.switches, ElementsAre(2, 1, 0, 0, 3, 3));
  EXPECT_THAT(MaxUnpool(pooled.switches, shape_, {1, 2, 3, 4, 5, 6}),
              ElementsAre(3, 4, 0, 2, 1, 0, 5, 6));
}

TEST_F(PoolingTest, SumAndBothAverages) {
  EXPECT_THAT(SumPool(map_, shape_, x_, Divisor::kOne), ElementsAre(8, -5, -3, 8, 5, -2));
  EXPECT_THAT(SumPool(map_, shape_, x_, Divisor::kPresent), ElementsAre(4, -2.5, -3, 8, 5, -2));
  EXPECT_THAT(SumPool(map_, shape_, x_, Divisor::kKernelVolume),
              ElementsAre(4, -2.5, -1.5, 4, 2.5, -1));
}

TEST_F(PoolingTest, SumUnpoolSpreadsAlongTheMap) {
  const std::vector<float> y = {1, 2, 3, 4, 5, 6};
  EXPECT_THAT(SumUnpool(map_, shape_, y, Divisor::kOne), ElementsAre(3, 4, 1, 2, 1, 2, 5, 6));
  EXPECT_THAT(SumUnpool(map_, shape_, y, Divisor::kPresent),
              ElementsAre(3, 4, 0.5, 1, 0.5, 1, 5, 6));
  EXPECT_THAT(SumUnpool(map_, shape_, y, Divisor::kKernelVolume),
              ElementsAre(1.5, 2, 0.5, 1, 0.5, 1, 2.5, 3));
}

TEST(PoolingEdgeTest, AnOutputWithoutInputsIsZero) {
  const KernelMap map = MapOf(AlongX({1}), StridedAlongX(1, 2));
  const PoolShape shape = {1, 1, 1};
  const MaxPooled pooled = MaxPool(map, shape, {-7.0});
  EXPECT_THAT(pooled.y, ElementsAre(0));
  EXPECT_THAT(pooled.switches, ElementsAre(-1));
  EXPECT_THAT(MaxUnpool(pooled.switches, shape, {9.0}), ElementsAre(0));
  EXPECT_THAT(SumPool(map, shape, {-7.0}, Divisor::kPresent), ElementsAre(0));
}

TEST(PoolingEdgeTest, OverlappingWindowsAddUp) {
  const KernelMap map = MapOf(AlongX({0, 1, 2}), StridedAlongX(3, 1));
  const PoolShape shape = {3, 3, 1};
  const MaxPooled pooled = MaxPool(map, shape, {1, 9, 2});
  EXPECT_THAT(pooled.switches, ElementsAre(1, 1, 1));
  EXPECT_THAT(MaxUnpool(pooled.switches, shape, {10, 20, 30}), ElementsAre(0, 60, 0));
}

TEST(PoolingEdgeTest, UnpoolingIsTheAdjointOfPooling) {
  std::mt19937 random(3);
  const std::vector<Coord> inputs = AlongX({-4, -3, -1, 0, 1, 2, 5, 8});
  const Geometry g = StridedAlongX(3, 2, Rule::kDilate);
  const std::vector<Coord> outputs = OutputCoordinates(inputs, g);
  const KernelMap map = BuildKernelMap(inputs, outputs, g);
  const PoolShape shape = {static_cast<int64_t>(inputs.size()),
                           static_cast<int64_t>(outputs.size()), 2};
  std::uniform_real_distribution<double> value(-1.0, 1.0);
  std::vector<double> x(inputs.size() * 2);
  std::vector<double> y(outputs.size() * 2);
  for (double& v : x) v = value(random);
  for (double& v : y) v = value(random);
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  for (const Divisor divisor : {Divisor::kOne, Divisor::kKernelVolume, Divisor::kPresent}) {
    EXPECT_NEAR(dot(SumPool(map, shape, x, divisor), y), dot(x, SumUnpool(map, shape, y, divisor)),
                1e-13);
  }
  const MaxPooled pooled = MaxPool(map, shape, x);
  EXPECT_NEAR(dot(pooled.y, y), dot(x, MaxUnpool(pooled.switches, shape, y)), 1e-13);
}

TEST(GlobalPoolTest, PoolsEachSampleAndYieldsZerosForAnEmptyOne) {
  const std::vector<int32_t> batch_of_row = {2, 0, 2};
  const std::vector<float> x = {-1, 4, -5, -6, -3, 2};
  EXPECT_THAT(GlobalPool(GlobalPooling::kMax, batch_of_row, 3, 2, x),
              ElementsAre(-5, -6, 0, 0, -1, 4));
  EXPECT_THAT(GlobalPool(GlobalPooling::kSum, batch_of_row, 3, 2, x),
              ElementsAre(-5, -6, 0, 0, -4, 6));
  EXPECT_THAT(GlobalPool(GlobalPooling::kAverage, batch_of_row, 3, 2, x),
              ElementsAre(-5, -6, 0, 0, -2, 3));
  EXPECT_THROW(GlobalPool(GlobalPooling::kMax, batch_of_row, 2, 2, x), std::invalid_argument);
}

TEST(LayersTest, BatchNormByChannel) {
  const BatchNormParams params = {
      .mean = {1, -2}, .variance = {3, 15}, .gamma = {2, 1}, .beta = {0.5, 0}, .epsilon = 1.0};
  EXPECT_THAT(BatchNorm({1, -2, 5, 2}, params), ElementsAre(0.5, 0, 4.5, 1));
  EXPECT_THROW(BatchNorm({1, 2, 3}, params), std::invalid_argument);
}

TEST(LayersTest, ReluKeepsNan) {
  const std::vector<double> y = Relu({-1.0, 2.0, kNan});
  EXPECT_EQ(y[0], 0.0);
  EXPECT_EQ(y[1], 2.0);
  EXPECT_TRUE(std::isnan(y[2]));
}

TEST(LayersTest, LinearIsAPointwiseConvolution) {
  const std::vector<Coord> voxels = AlongX({4, 1});
  const Geometry pointwise = {.kind = Kind::kSubmanifold, .kernel = {1, 1, 1}};
  const std::vector<double> x = {1, 2, 3, 4};
  const std::vector<double> w = {1, 10, 100, 2, 20, 200};
  const std::vector<double> y = Linear(x, 2, 2, 3, w, {1, 2, 3});
  EXPECT_THAT(y, ElementsAre(6, 52, 503, 12, 112, 1103));
  EXPECT_EQ(Convolution(MapOf(voxels, pointwise), {2, 2, 2, 3}, x, w, {1, 2, 3}), y);
}

TEST(LayersTest, AddAndConcat) {
  EXPECT_THAT(Add({1, 2}, {10, 20}), ElementsAre(11, 22));
  EXPECT_THROW(Add({1, 2}, {10}), std::invalid_argument);
  EXPECT_THAT(Concat({1, 2}, {10, 11, 20, 21}, 2), ElementsAre(1, 10, 11, 2, 20, 21));
  EXPECT_THAT(Concat({}, {}, 0), IsEmpty());
  EXPECT_THROW(Concat({1, 2, 3}, {1, 2}, 2), std::invalid_argument);
}

TEST(RelativeErrorTest, IsNormWise) {
  EXPECT_DOUBLE_EQ(RelativeError({3, 5}, {3, 4}), 0.2);
  EXPECT_NEAR(RelativeError({3e-200, 5e-200}, {3e-200, 4e-200}), 0.2, 1e-15);
  EXPECT_NEAR(RelativeError({3e200, 5e200}, {3e200, 4e200}), 0.2, 1e-15);
}

TEST(RelativeErrorTest, DefinesTheDegenerateCases) {
  EXPECT_EQ(RelativeError({}, {}), 0.0);
  EXPECT_EQ(RelativeError({0, 0}, {0, 0}), 0.0);
  EXPECT_EQ(RelativeError({0, 1e-30}, {0, 0}), kInfinity);
  EXPECT_EQ(RelativeError({1}, {1, 2}), kInfinity);
  for (const double bad : {kNan, kInfinity, -kInfinity}) {
    EXPECT_EQ(RelativeError({bad, 1}, {1, 1}), kInfinity);
    EXPECT_EQ(RelativeError({1, 1}, {bad, 1}), kInfinity);
    EXPECT_EQ(RelativeError({bad}, {bad}), kInfinity);
  }
}

}  // namespace
}  // namespace voxconv::reference
