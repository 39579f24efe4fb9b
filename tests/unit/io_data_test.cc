// SPDX-License-Identifier: Apache-2.0
// Golden counts on real scans; skipped where the files are missing.
#include <algorithm>
#include <cmath>

#include "io_test_util.h"
#include "voxconv/io/load_input.h"
#include "voxconv/io/read_point_cloud.h"

namespace voxconv {
namespace {

struct Scan {
  const char* file;
  const char* fields;  // "" where the extension says it
  const char* dtype_in;
  int64_t points;
  int64_t dropped;
  struct {
    double size;
    int64_t voxels;
  } counts[2];
};

constexpr Scan kScans[] = {
    {"semkitti_spvnas_000000.bin", "", "", 123'389, 0, {{0.05, 94'444}, {0.1, 68'642}}},
    {"kitti_odom_000000.bin", "", "", 124'668, 0, {{0.05, 91'767}, {0.1, 60'152}}},
    {"nuscenes_1sweep_n015.pcd.bin", "", "", 34'688, 0, {{0.05, 23'112}, {0.1, 17'885}}},
    {"nuscenes_10sweep_ff9eff_f16.bin",
     "x,y,z,intensity,dt",
     "f16",
     271'156,
     0,
     {{0.05, 189'729}, {0.1, 121'962}}},
    {"open3d_fragment.pcd", "", "", 113'662, 0, {{0.05, 2'659}, {0.02, 15'687}}},
    {"pcl_office1.pcd", "", "", 254'456, 52'744, {{0.05, 16'730}, {0.02, 67'104}}},
};

class RealScan : public testing::TestWithParam<Scan> {};

TEST_P(RealScan, HasTheGoldenVoxelCounts) {
  const Scan& scan = GetParam();
  VOXCONV_DATA_FILE_OR_SKIP(path, scan.file);
  ReadOptions options;
  options.fields = scan.fields;
  options.dtype_in = scan.dtype_in;
  const absl::StatusOr<PointCloud> cloud = ReadPointCloud(path, options);
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  EXPECT_EQ(cloud->size(), scan.points);
  EXPECT_EQ(cloud->dropped, scan.dropped);
  for (const auto& [size, voxels] : scan.counts) {
    VoxelizeOptions voxelize;
    voxelize.size = {size, size, size};
    const absl::StatusOr<VoxelizedCloud> voxelized = Voxelize(*cloud, voxelize);
    ASSERT_TRUE(voxelized.ok()) << voxelized.status();
    EXPECT_EQ(voxelized->size(), voxels) << "at " << size;
  }
}

INSTANTIATE_TEST_SUITE_P(Data, RealScan, testing::ValuesIn(kScans),
                         [](const testing::TestParamInfo<Scan>& info) {
                           std::string name = info.param.file;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST(RealData, KittiFrameHasItsKnownNeighbours) {
  VOXCONV_DATA_FILE_OR_SKIP(path, "semkitti_spvnas_000000.bin");
  const absl::StatusOr<VoxelizedCloud> voxels = LoadInput(path, {});
  ASSERT_TRUE(voxels.ok()) << voxels.status();
  EXPECT_EQ(CountNeighbourPairs(*voxels), 284'298);
}

TEST(RealData, HalfPrecisionReadAsFloatIsRefused) {
  VOXCONV_DATA_FILE_OR_SKIP(path, "nuscenes_10sweep_ff9eff_f16.bin");
  EXPECT_THAT(ReadPointCloud(path, {}), FailsWith(kInvalid, "not a multiple of the 16-byte row"));
  ReadOptions fields;
  fields.fields = "x,y,z,intensity,dt";  // with these the size does divide
  EXPECT_THAT(ReadPointCloud(path, fields), FailsWith(kInvalid, "plausible as dtype_in f16"));
  const std::string bytes = FileBytes(path);
  EXPECT_THAT(ParsePointCloud(bytes.substr(0, bytes.size() / 16 * 16), "cut.bin", {}),
              FailsWith(kInvalid, "is not a table of f32"));
}

TEST(RealData, MeshesAreSampledInTheUnitSphere) {
  for (const char* name : {"stanford-bunny.obj", "fandisk.obj", "modelnet_bathtub_0154.ply"}) {
    VOXCONV_DATA_FILE_OR_SKIP(path, name);
    ReadOptions options;
    options.samples = 2'000;
    options.into_unit_sphere = true;
    const absl::StatusOr<PointCloud> cloud = ReadPointCloud(path, options);
    ASSERT_TRUE(cloud.ok()) << cloud.status();
    EXPECT_EQ(cloud->size(), 2'000) << name;
    EXPECT_EQ(cloud->channels(), 3) << name;
    for (const double value : cloud->xyz) ASSERT_LE(std::abs(value), 1.0) << name;
  }
}

}  // namespace
}  // namespace voxconv
