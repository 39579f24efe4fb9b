// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "io_test_util.h"
#include "voxconv/core/random.h"
#include "voxconv/io/load_input.h"
#include "voxconv/io/scenes.h"
#include "voxconv/io/sin_cos.h"

namespace voxconv {
namespace {

VoxelizedCloud Load(const std::string& spec, double size = 0.05,
                    RowOrder order = RowOrder::kSorted) {
  LoadOptions options;
  options.voxelize.size = {size, size, size};
  options.voxelize.order = order;
  absl::StatusOr<VoxelizedCloud> voxels = LoadInput(spec, options);
  EXPECT_TRUE(voxels.ok()) << voxels.status();
  return voxels.ok() ? *std::move(voxels) : VoxelizedCloud{};
}

struct Golden {
  const char* spec;
  double size;
  int64_t voxels;
  uint64_t checksum;  // of sorted rows
  uint64_t scan;      // of rows in scan order
};

// A change here changes every result measured on the scene: change it knowingly.
constexpr Golden kGolden[] = {
    {"scene:lidar64", 0.05, 89'664, 0xbeb629b4ff33404e, 0x55974fa222a74162},
    {"scene:lidar64?beams=32&azimuths=540&sweeps=10&seed=7", 0.1, 86'587, 0x86977d746caaff58,
     0xd05559c27a0428ec},
    {"scene:room?spacing=0.03", 0.05, 38'595, 0x88451b7a4e179b56, 0xd945793b5bd94592},
    {"scene:sphere?n=5000", 0.05, 3'214, 0xd2f25bb5f2e2d44, 0x90eaedb6d1225ea8},
    {"scene:torus?n=5000", 0.05, 2'689, 0xb81f9c9df8d2bc7d, 0x63dea7b1d3899b25},
    {"scene:uniform?n=1000&box=40", 1, 1'000, 0x169ed37e6f968a8b, 0x316a976a1a47753},
    {"scene:uniform?n=1000&box=400", 1, 1'000, 0x83b89dfcb574ba7b, 0xa0e68f8adef146a7},
    {"scene:isolated?n=1000", 1, 1'000, 0x2aba364590144742, 0x371103f1cb1d26b2},
    {"scene:blocks?n=10&edge=5", 1, 1'250, 0x9457da533a315ea5, 0xce06f864eaab5cd9},
};

TEST(Scenes, GoldenChecksums) {
  for (const Golden& golden : kGolden) {
    const VoxelizedCloud voxels = Load(golden.spec, golden.size);
    EXPECT_EQ(voxels.size(), golden.voxels) << golden.spec;
    EXPECT_EQ(Checksum(voxels), golden.checksum)
        << golden.spec << absl::StrCat(" 0x", absl::Hex(Checksum(voxels)));
    const uint64_t scan = Checksum(Load(golden.spec, golden.size, RowOrder::kScan));
    EXPECT_EQ(scan, golden.scan) << golden.spec << absl::StrCat(" 0x", absl::Hex(scan));
  }
}

TEST(Scenes, NoneMakesItsVoxelsInSortedOrder) {
  for (const SceneInfo& info : ListScenes()) {
    const VoxelizedCloud voxels = Load("scene:" + info.name, 0.05, RowOrder::kScan);
    EXPECT_FALSE(std::is_sorted(voxels.coords.begin(), voxels.coords.end())) << info.name;
    EXPECT_EQ(voxels.order, RowOrder::kScan);
  }
}

TEST(Scenes, AllAreListedAndMakeable) {
  ASSERT_FALSE(ListScenes().empty());
  for (const SceneInfo& info : ListScenes()) {
    const absl::StatusOr<Scene> scene = MakeScene(absl::StrCat("scene:", info.name));
    ASSERT_TRUE(scene.ok()) << scene.status();
    EXPECT_EQ(std::holds_alternative<VoxelizedCloud>(*scene), info.makes_voxels) << info.name;
    EXPECT_FALSE(info.summary.empty());
    for (const SceneParam& param : info.params) {
      EXPECT_LE(param.min, param.default_value) << info.name << " " << param.name;
      EXPECT_LE(param.default_value, param.max) << info.name << " " << param.name;
    }
  }
}

TEST(Scenes, SeedChangesThem) {
  for (const char* name : {"lidar64?azimuths=64", "room?spacing=0.1", "sphere?n=99", "torus?n=99",
                           "uniform?n=99", "isolated?n=99", "blocks?n=9"}) {
    const std::string spec = absl::StrCat("scene:", name, "&seed=");
    EXPECT_EQ(Checksum(Load(spec + "1")), Checksum(Load(spec + "1"))) << spec;
    EXPECT_NE(Checksum(Load(spec + "1")), Checksum(Load(spec + "2"))) << spec;
  }
}

TEST(Scenes, LidarIsLikeARealFrame) {
  const VoxelizedCloud voxels = Load("scene:lidar64");
  EXPECT_GT(voxels.points, 110'000);
  EXPECT_GT(voxels.size(), 60'000);
  EXPECT_LT(voxels.size(), 100'000);
  const double neighbours =
      static_cast<double>(CountNeighbourPairs(voxels)) / static_cast<double>(voxels.size());
  EXPECT_GT(neighbours, 2.5);  // real HDL-64 frames at 0.05 m: 3.0 to 3.8
  EXPECT_LT(neighbours, 4.0);
}

TEST(Scenes, LidarSweepsCarryTime) {
  const PointCloud one = std::get<PointCloud>(*MakeScene("scene:lidar64?azimuths=200"));
  EXPECT_THAT(one.feature_names, testing::ElementsAre("intensity"));
  const PointCloud ten = std::get<PointCloud>(*MakeScene("scene:lidar64?azimuths=200&sweeps=10"));
  EXPECT_THAT(ten.feature_names, testing::ElementsAre("intensity", "dt"));
  EXPECT_GT(ten.size(), 9 * one.size());
  EXPECT_FLOAT_EQ(ten.features[1], 0.9f);
  EXPECT_FLOAT_EQ(ten.features.back(), 0.0f);
}

TEST(Scenes, VoxelScenesKeepTheirPromises) {
  const VoxelizedCloud uniform = Load("scene:uniform?n=8000&box=20&channels=2");
  EXPECT_EQ(uniform.size(), 8000);  // every cell of the box
  EXPECT_EQ(CountNeighbourPairs(uniform), 58 * 58 * 58);
  EXPECT_EQ(uniform.channels, 2);
  EXPECT_EQ(Load("scene:uniform?n=1234&box=100").size(), 1234);
  const VoxelizedCloud isolated = Load("scene:isolated?n=5000");
  EXPECT_EQ(isolated.size(), 5000);
  EXPECT_EQ(CountNeighbourPairs(isolated), 5000);
  const VoxelizedCloud blocks = Load("scene:blocks?n=20&edge=4");
  EXPECT_EQ(blocks.size(), 20 * 64);
  EXPECT_EQ(CountNeighbourPairs(blocks), 20 * 1000);
  EXPECT_EQ(CountNeighbourPairs(Load("scene:blocks?n=50&edge=1")), 50);
}

TEST(Scenes, ObjectsLieOnTheirSurface) {
  const PointCloud sphere = std::get<PointCloud>(*MakeScene("scene:sphere?n=1000"));
  for (int64_t i = 0; i < sphere.size(); ++i) {
    const double* p = &sphere.xyz[3 * i];
    EXPECT_NEAR(p[0] * p[0] + p[1] * p[1] + p[2] * p[2], 1, 1e-12);
  }
  const PointCloud torus = std::get<PointCloud>(*MakeScene("scene:torus?n=1000"));
  for (int64_t i = 0; i < torus.size(); ++i) {
    const double* p = &torus.xyz[3 * i];
    const double ring = std::sqrt(p[0] * p[0] + p[1] * p[1]) - 0.7;
    EXPECT_NEAR(ring * ring + p[2] * p[2], 0.09, 1e-12);
  }
}

TEST(Scenes, RefusesSpecsByName) {
  EXPECT_THAT(MakeScene("room"), FailsWith(kInvalid, "scene:NAME"));
  EXPECT_THAT(MakeScene("scene:"), FailsWith(kNotFound, "allowed: lidar64, room"));
  EXPECT_THAT(MakeScene("scene:office"), FailsWith(kNotFound, "scene:office: unknown scene"));
  EXPECT_THAT(MakeScene("scene:room?n=3"), FailsWith(kNotFound, "'n'; allowed: spacing, seed"));
  EXPECT_THAT(MakeScene("scene:uniform?n"), FailsWith(kInvalid, "integers from 1 to"));
  EXPECT_THAT(MakeScene("scene:uniform?n=many"), FailsWith(kInvalid, "n=many"));
  EXPECT_THAT(MakeScene("scene:uniform?n=1.5"), FailsWith(kInvalid, "n=1.5"));
  EXPECT_THAT(MakeScene("scene:uniform?n=nan"), FailsWith(kInvalid, "n=nan"));
  EXPECT_THAT(MakeScene("scene:uniform?n=-1"), FailsWith(kInvalid, "n=-1"));
  EXPECT_THAT(MakeScene("scene:uniform?n=9&n=9"), FailsWith(kInvalid, "n is given twice"));
  EXPECT_THAT(MakeScene("scene:uniform?n=28&box=3"), FailsWith(kInvalid, "27 cells"));
  EXPECT_THAT(MakeScene("scene:uniform?n=2e7&channels=1024"), FailsWith(kInvalid, "2^31"));
  EXPECT_THAT(MakeScene("scene:blocks?n=1e6&edge=256"), FailsWith(kInvalid, "allowed are"));
}

TEST(Random, SinCosIsAccurate) {
  for (int i = -1000; i <= 1000; ++i) {
    const double turns = i / 700.0;
    const io_internal::SinCos value = io_internal::SinCosTurns(turns);
    EXPECT_NEAR(value.sin, std::sin(turns * 2 * M_PI), 1e-14);
    EXPECT_NEAR(value.cos, std::cos(turns * 2 * M_PI), 1e-14);
  }
}

TEST(Random, BelowCoversItsRangeEvenly) {
  Random random(5);
  int counts[3] = {0, 0, 0};
  for (int i = 0; i < 30'000; ++i) ++counts[random.Below(3)];
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 400);
}

}  // namespace
}  // namespace voxconv
