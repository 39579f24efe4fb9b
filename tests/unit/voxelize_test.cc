// SPDX-License-Identifier: Apache-2.0
// Points to voxels on every backend, against the host's Voxelize, point by point rules, and other
// libraries' rules as their documentation has them.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "io_test_util.h"
#include "voxconv/io/read_point_cloud.h"
#include "voxconv/io/scenes.h"
#include "voxel_ops_test_util.h"

namespace voxconv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class VoxelizeOpTest : public VoxelOpsTest {
 protected:
  // The host's voxels of each sample, put into the order of the cloud.
  void ExpectAsOnHost(const Points& points, const VoxelOptions& options) {
    SCOPED_TRACE(testing::Message() << points.size() << " points");
    const absl::StatusOr<Result> result = Voxels(points, options);
    ASSERT_TRUE(result.ok()) << result.status();
    const Result expected = Expected(points, options);
    EXPECT_EQ(result->coords, expected.coords);
    EXPECT_EQ(result->voxel_of_point, expected.voxel_of_point);
    EXPECT_EQ(result->points_of_voxel, expected.points_of_voxel);
    EXPECT_EQ(result->begins, expected.begins);
    EXPECT_EQ(result->points, expected.points);
    EXPECT_EQ(result->summary.dropped, 0);
    ASSERT_EQ(result->features.size(), expected.features.size());
    const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
    EXPECT_TRUE(std::ranges::equal(result->features, expected.features, {}, bits, bits));
    ExpectSummary(*result);
  }

  static void ExpectSummary(const Result& result) {
    ASSERT_EQ(result.summary.voxels, static_cast<int64_t>(result.coords.size()));
    if (result.coords.empty()) return;
    Box bounds{result.coords[0].position(), result.coords[0].position()};
    int32_t batches = 0;
    for (const Coordinate& voxel : result.coords) {
      for (int axis = 0; axis < 3; ++axis) {
        bounds.lo[axis] = std::min(bounds.lo[axis], voxel.position()[axis]);
        bounds.hi[axis] = std::max(bounds.hi[axis], voxel.position()[axis]);
      }
      batches = std::max(batches, voxel.b + 1);
    }
    EXPECT_EQ(result.summary.bounds, bounds);
    EXPECT_EQ(result.summary.batches, batches);
  }

  static Result Expected(const Points& points, const VoxelOptions& options) {
    VoxelizeOptions host;
    host.size = options.size;
    host.origin = options.origin;
    host.rule = options.quotient == VoxelQuotient::kF32 ? VoxelRule::kSpconv : VoxelRule::kF64;
    host.xyz_features = options.xyz_features;
    std::vector<int64_t> voxel_of_point;
    const auto cloud = Voxelize(HostCloud(points), host, &voxel_of_point);
    EXPECT_TRUE(cloud.ok()) << cloud.status();
    Result result{.coords = cloud->coords, .features = cloud->features};
    std::vector<std::vector<int32_t>> members(cloud->size());
    for (int64_t i = 0; i < points.size(); ++i) {
      result.voxel_of_point.push_back(static_cast<int32_t>(voxel_of_point[i]));
      members[voxel_of_point[i]].push_back(static_cast<int32_t>(i));
    }
    for (const std::vector<int32_t>& of_voxel : members) {
      result.begins.push_back(static_cast<int32_t>(result.points.size()));
      const bool first = options.features == VoxelFeatures::kFirst;
      result.points_of_voxel.push_back(first ? 1 : static_cast<int32_t>(of_voxel.size()));
      result.points.insert(result.points.end(), of_voxel.begin(), of_voxel.end());
    }
    result.begins.push_back(static_cast<int32_t>(result.points.size()));
    return result;
  }
};

VoxelOptions CubeOf(double size) {
  VoxelOptions options;
  options.size = {size, size, size};
  return options;
}

TEST_P(VoxelizeOpTest, RandomCloudsAreTheHosts) {
  for (const int64_t count : {0, 1, 2, 255, 256, 1023, 1024, 1025, 5000, 70'000}) {
    for (const double size : {0.02, 0.3, 5.0}) {
      ExpectAsOnHost(RandomPoints(count, 5, 1.0, count + 1), CubeOf(size));
    }
  }
}

TEST_P(VoxelizeOpTest, SizesOriginsAndColumns) {
  VoxelOptions options;
  options.size = {0.1, 0.25, 1.0 / 3};
  options.origin = {-0.7, 0.1, 1e-3};
  for (const int64_t columns : {3, 4, 7, 35}) {
    for (const bool xyz_features : {true, false}) {
      options.xyz_features = xyz_features;
      ExpectAsOnHost(RandomPoints(3000, columns, 2), options);
    }
  }
}

// As the means: bit by bit.
TEST_P(VoxelizeOpTest, SpconvsQuotientIsTheHosts) {
  Points points = RandomPoints(50'000, 4, 40);
  for (size_t i = 0; i < points.values.size(); i += 8) {  // on edges of voxels
    for (size_t axis = 0; axis < 3; ++axis) {
      points.values[i + axis] = 0.1f * std::round(points.values[i + axis] * 10.0f);
    }
  }
  VoxelOptions options = CubeOf(0.1);
  options.quotient = VoxelQuotient::kF32;
  options.features = VoxelFeatures::kFirst;
  options.origin = {-51.2, -51.2, -5};
  ExpectAsOnHost(points, options);
  options.quotient = VoxelQuotient::kF64;
  options.features = VoxelFeatures::kMean;
  ExpectAsOnHost(points, options);
}

TEST_P(VoxelizeOpTest, ManyPointsInAVoxel) {
  ExpectAsOnHost(RandomPoints(20'000, 4, 1), CubeOf(10));  // eight voxels
  Points same = RandomPoints(3000, 4, 0);                  // one
  ExpectAsOnHost(same, CubeOf(1));
  // Voxels of many and of few points, of which the first points lie everywhere.
  Points mixed = RandomPoints(30'000, 4, 1);
  for (int64_t i = 0; i < mixed.size(); i += 3) mixed.values[4 * i] *= 40;
  ExpectAsOnHost(mixed, CubeOf(0.7));
}

TEST_P(VoxelizeOpTest, ScannedScenesAreTheHosts) {
  for (const char* spec : {"scene:lidar64?azimuths=300", "scene:lidar64"}) {
    const absl::StatusOr<Scene> scene = MakeScene(spec);
    ASSERT_TRUE(scene.ok()) << scene.status();
    const auto* cloud = std::get_if<PointCloud>(&*scene);
    ASSERT_NE(cloud, nullptr);
    for (const double size : {0.05, 0.4}) ExpectAsOnHost(PointsOf(*cloud), CubeOf(size));
  }
}

// Every cloud of the data folder of at most 8 MiB, rounded to float32.
TEST_P(VoxelizeOpTest, RealCloudsAreTheHosts) {
  VOXCONV_DATA_FILE_OR_SKIP(folder, "");
  int64_t clouds = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    if (!file.is_regular_file() || file.file_size() > (int64_t{1} << 23)) continue;
    const absl::StatusOr<PointCloud> cloud = ReadPointCloud(file.path().string(), {});
    if (!cloud.ok() || cloud->size() == 0) continue;
    SCOPED_TRACE(file.path().string());
    ++clouds;
    double extent = 1e-3;
    for (const double value : cloud->xyz) extent = std::max(extent, std::abs(value));
    ExpectAsOnHost(PointsOf(*cloud), CubeOf(extent / 1500));
  }
  if (clouds == 0) GTEST_SKIP() << "no cloud in " << folder;
}

TEST_P(VoxelizeOpTest, SamplesOfABatchDoNotMeet) {
  Points points = RandomPoints(6000, 4, 1);
  Random random(3);
  for (int64_t i = 0; i < points.size(); ++i) {
    points.batches.push_back(static_cast<int32_t>(random.Below(3) * 255));
  }
  const VoxelOptions options = CubeOf(0.3);
  const absl::StatusOr<Result> result = Voxels(points, options);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectSummary(*result);
  EXPECT_EQ(result->summary.batches, 511);
  int64_t voxels = 0;
  for (const int32_t batch : {0, 255, 510}) {
    Points sample{.columns = 4};
    std::vector<int64_t> members;
    for (int64_t i = 0; i < points.size(); ++i) {
      if (points.batches[i] != batch) continue;
      members.push_back(i);
      for (int64_t c = 0; c < 4; ++c) sample.values.push_back(points.values[4 * i + c]);
    }
    const Result expected = Expected(sample, options);
    voxels += static_cast<int64_t>(expected.coords.size());
    for (size_t k = 0; k < members.size(); ++k) {
      const int32_t row = result->voxel_of_point[members[k]];
      const int32_t own = expected.voxel_of_point[k];
      ASSERT_EQ(result->coords[row].b, batch);
      ASSERT_EQ(result->coords[row].position(), expected.coords[own].position());
      for (int c = 0; c < 4; ++c) {
        ASSERT_EQ(result->features[4 * row + c], expected.features[4 * own + c]);
      }
    }
  }
  EXPECT_EQ(result->summary.voxels, voxels);
}

// PointToVoxel as its documentation has it, one point after the other.
struct ServedVoxels {
  std::vector<Coordinate> coords;
  std::vector<std::vector<float>> features;  // of each voxel, [max_points * columns]
  std::vector<int32_t> counts, voxel_of_point;
};
ServedVoxels ServeInOrder(const Points& points, const std::array<float, 3>& size,
                          const std::array<float, 3>& low, const std::array<int, 3>& cells,
                          int32_t max_points, size_t max_voxels) {
  ServedVoxels served;
  std::map<std::array<int, 3>, int32_t> rows;
  for (int64_t i = 0; i < points.size(); ++i) {
    const float* point = points.values.data() + i * points.columns;
    std::array<int, 3> voxel{};
    bool inside = true;
    for (int axis = 0; axis < 3; ++axis) {
      volatile float offset = point[axis] - low[axis];  // no wider intermediate result
      volatile float quotient = offset / size[axis];
      const float cell = std::floor(quotient);
      inside = inside && cell >= 0 && cell < static_cast<float>(cells[axis]);
      if (inside) voxel[axis] = static_cast<int>(cell);
    }
    served.voxel_of_point.push_back(-1);
    if (!inside) continue;
    auto at = rows.find(voxel);
    if (at == rows.end()) {
      if (served.coords.size() >= max_voxels) continue;
      at = rows.emplace(voxel, static_cast<int32_t>(served.coords.size())).first;
      served.coords.push_back({0, voxel[0], voxel[1], voxel[2]});
      served.features.emplace_back(max_points * points.columns, 0.0f);
      served.counts.push_back(0);
    }
    const int32_t row = at->second;
    served.voxel_of_point.back() = row;
    if (served.counts[row] == max_points) continue;
    std::copy_n(point, points.columns,
                served.features[row].begin() + served.counts[row]++ * points.columns);
  }
  return served;
}

// SpConv holds size and range in float32.
TEST(PointToVoxelTest, CellsAreCountedInFloat32) {
  const VoxelOptions options =
      PointToVoxelOptions({0.1, 0.1, 0.1}, {0, 0, 0}, {0.35, 0.65, 1}, 1, 1);
  EXPECT_EQ(options.cells, (Int3{4, 6, 10}));
}

TEST_P(VoxelizeOpTest, PointToVoxelIsExact) {
  const Points points = RandomPoints(40'000, 5, 60, 9);
  const std::array<double, 3> size{0.8, 0.8, 4}, low{-51.2, -51.2, -5}, high{51.2, 51.2, 3};
  for (const int64_t max_points : {1, 3, 10}) {
    for (const int64_t max_voxels : {1, 700, 1 << 20}) {
      SCOPED_TRACE(testing::Message() << max_points << " points, " << max_voxels << " voxels");
      VoxelOptions options = PointToVoxelOptions(size, low, high, max_points, max_voxels);
      const absl::StatusOr<Result> result = Voxels(points, options);
      ASSERT_TRUE(result.ok()) << result.status();
      const ServedVoxels expected =
          ServeInOrder(points, {0.8f, 0.8f, 4.0f}, {-51.2f, -51.2f, -5.0f}, {128, 128, 2},
                       static_cast<int32_t>(max_points), max_voxels);
      EXPECT_EQ(result->coords, expected.coords);
      EXPECT_EQ(result->points_of_voxel, expected.counts);
      EXPECT_EQ(result->voxel_of_point, expected.voxel_of_point);
      EXPECT_EQ(result->summary.dropped,
                std::count(expected.voxel_of_point.begin(), expected.voxel_of_point.end(), -1));
      ExpectSummary(*result);
      std::vector<float> features;
      for (const auto& row : expected.features) {
        features.insert(features.end(), row.begin(), row.end());
      }
      EXPECT_TRUE(result->features == features);
      // The mean of these points.
      options.features = VoxelFeatures::kMean;
      const absl::StatusOr<Result> means = Voxels(points, options);
      ASSERT_TRUE(means.ok()) << means.status();
      for (size_t row = 0; row < expected.coords.size(); ++row) {
        for (int64_t c = 0; c < points.columns; ++c) {
          double sum = 0;
          for (int32_t k = 0; k < expected.counts[row]; ++k) {
            sum += expected.features[row][k * points.columns + c];
          }
          ASSERT_EQ(means->features[row * points.columns + c],
                    static_cast<float>(sum / expected.counts[row]));
        }
      }
    }
  }
}

// The box is half open, and points are cut before they become voxels.
TEST_P(VoxelizeOpTest, RangesDropPoints) {
  const Points points{.values = {0, 0, 0, 0.999f, 0, 0, 1, 0, 0, 5e8f, 0, 0, -0.5f, 0, 0}};
  VoxelOptions options = CubeOf(0.5);
  options.low = {0, -1, -1};
  options.high = {1, 1, 1};
  absl::StatusOr<Result> result = Voxels(points, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->voxel_of_point, ElementsAre(0, 1, -1, -1, -1));
  EXPECT_EQ(result->summary.dropped, 3);
  options.high = {-1, 1, 1};
  EXPECT_THAT(Voxels(points, options).status().message(),
              HasSubstr("range along x = 0 to -1: its low must be below its high"));
  options.low = {100, -1, -1};
  options.high = {200, 1, 1};
  result = Voxels(points, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->summary.voxels, 0);
  EXPECT_EQ(result->summary.dropped, 5);
  EXPECT_EQ(result->begins, std::vector<int32_t>{0});
}

// The first such point is named, whatever comes later.
TEST_P(VoxelizeOpTest, SaysWhichPointHasNoVoxel) {
  Points points = RandomPoints(9000, 4, 1);
  points.values[4 * 8000] = std::numeric_limits<float>::infinity();
  points.values[4 * 5000 + 2] = std::nanf("");
  absl::Status status = Voxels(points, CubeOf(0.1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(status.message(), HasSubstr("point 5000: z = nan falls into voxel nan"));
  points.values[4 * 4999 + 1] = 131072;
  status = Voxels(points, CubeOf(1)).status();
  EXPECT_EQ(status.message(),
            Voxelize(HostCloud(points), VoxelizeOptions{.size = {1, 1, 1}}).status().message());
  EXPECT_THAT(status.message(), HasSubstr("point 4999: y = 131072 falls into voxel 131072"));
  // A NaN is not outside of a range.
  VoxelOptions cut = CubeOf(1);
  cut.low = {-2, -2, -2};
  cut.high = {2, 2, 2};
  EXPECT_THAT(Voxels(points, cut).status().message(), HasSubstr("point 5000: z = nan"));
  // Nor is an infinity, unless a limit cuts it off.
  for (const float sign : {1.0f, -1.0f}) {
    Points far = RandomPoints(20, 3, 1);
    far.values[3 * 7 + 1] = sign * std::numeric_limits<float>::infinity();
    status = Voxels(far, CubeOf(1)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_EQ(status.message(),
              Voxelize(HostCloud(far), VoxelizeOptions{.size = {1, 1, 1}}).status().message());
    EXPECT_TRUE(Voxels(far, cut).ok());
  }
  Points batches = RandomPoints(4, 3, 1);
  batches.batches = {0, 511, 512, -1};
  status = Voxels(batches, CubeOf(1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("point 2: batch = 512: allowed are 0 to 511"));
}

TEST_P(VoxelizeOpTest, RefusesArgumentsByName) {
  const auto message = [&](const Points& points, const VoxelOptions& options) {
    return std::string(Voxels(points, options).status().message());
  };
  const Points points = RandomPoints(4, 4, 1);
  EXPECT_THAT(message({.values = {1, 2}, .columns = 2}, CubeOf(1)), HasSubstr("2 columns"));
  EXPECT_THAT(message(points, CubeOf(0)), HasSubstr("voxel size along x = 0"));
  VoxelOptions options = CubeOf(1);
  options.origin[1] = std::nan("");
  EXPECT_THAT(message(points, options), HasSubstr("origin along y = nan"));
  options = CubeOf(1);
  options.max_voxels = -1;
  EXPECT_THAT(message(points, options), HasSubstr("max_voxels = -1"));
  options = CubeOf(1);
  options.features = VoxelFeatures::kPoints;
  EXPECT_THAT(message(points, options), HasSubstr("max_points = 0"));
  EXPECT_THAT(message(points, PointToVoxelOptions({1, 1, 1}, {0, 0, 0}, {9, 9, 0}, 5, 9)),
              HasSubstr("cells along z = -1"));
}

TEST_P(VoxelizeOpTest, Open3dsOriginIsHalfAVoxelBelow) {
  const Points points{.values = {0, 0, 0, 0.49f, 0, 0, 0.51f, 0, 0}};
  VoxelOptions options = CubeOf(1);
  options.origin = DownSampleOrigin({0, 0, 0}, options.size);
  const absl::StatusOr<Result> result = Voxels(points, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->voxel_of_point, ElementsAre(0, 0, 1));
  EXPECT_EQ(result->features[0], static_cast<float>(double{0.49f} / 2));
}

TEST_P(VoxelizeOpTest, RepeatsBitwise) {
  const Points points = RandomPoints(60'000, 6, 1);
  for (const double size : {0.03, 0.5}) {
    const Result first = *Voxels(points, CubeOf(size));
    for (int i = 0; i < 5; ++i) {
      const Result again = *Voxels(points, CubeOf(size));
      ASSERT_TRUE(again.coords == first.coords && again.features == first.features &&
                  again.voxel_of_point == first.voxel_of_point && again.points == first.points);
    }
  }
}

TEST_P(VoxelizeOpTest, GivesWhatANetworkTakes) {
  const Points points = RandomPoints(2000, 4, 1);
  const Placed placed = Place(points);
  PointVoxels voxels = *ops().Voxelize(placed.values.view(), nullptr, CubeOf(0.2), context_);
  const absl::StatusOr<SparseTensorView> view = TakeVoxels(voxels, context_);
  ASSERT_TRUE(view.ok()) << view.status();
  const Result expected = Expected(points, CubeOf(0.2));
  EXPECT_EQ(*CopyToHost(view->coordinates->rows(), context_), expected.coords);
  EXPECT_EQ(view->features.rows, static_cast<int64_t>(expected.coords.size()));
  EXPECT_EQ(*ToHost(view->features, context_), expected.features);
  EXPECT_EQ(view->coordinates->num_batches(), 1);
}

#ifdef VOXCONV_TEST_CUDA
TEST(CudaVoxelize, QueuesFiveKernelsAndNeverWaits) {
  VOXCONV_NEED_CUDA(unit);
  const ExecutionContext& context = unit->context;
  const Points points = RandomPoints(20'000, 4, 1);
  const Tensor values = *Tensor::FromHost(points.values, points.size(), 4, context);
  VoxelOps& ops = *unit->backend->voxel_ops();
  ASSERT_TRUE(ops.Voxelize(values.view(), nullptr, CubeOf(0.1), context).ok());
  const int64_t launches = unit->profile.counters.launches;
  const int64_t waits = unit->backend->synchronisations();
  const auto voxels = ops.Voxelize(values.view(), nullptr, CubeOf(0.1), context);
  ASSERT_TRUE(voxels.ok()) << voxels.status();
  EXPECT_EQ(unit->profile.counters.launches - launches, 5);
  EXPECT_EQ(unit->backend->synchronisations(), waits);
  ASSERT_TRUE(CollectVoxels(*voxels, context).ok());
  EXPECT_EQ(unit->backend->synchronisations(), waits + 1);
}
#endif

VOXCONV_ON_EVERY_BACKEND(VoxelizeOpTest);

}  // namespace
}  // namespace voxconv
