// SPDX-License-Identifier: Apache-2.0
// Files that hold voxels, and inputs that are cut to a range.
#include <cmath>

#include "io_test_util.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/io/load_input.h"
#include "voxconv/io/npy.h"

namespace voxconv {
namespace {

using ::testing::ElementsAre;

NpyArray Ints(std::vector<int64_t> shape, const std::vector<int64_t>& values) {
  return MakeNpyArray(std::move(shape), absl::MakeConstSpan(values));
}

NpyArray Floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  return MakeNpyArray(std::move(shape), absl::MakeConstSpan(values));
}

class LoadVoxels : public ::testing::Test {
 protected:
  std::string Npy(const NpyArray& array) const {
    return folder_.Write("a.npy", *SerializeNpy(array));
  }
  std::string Npz(const NpzArrays& arrays) const {
    return folder_.Write("a.npz", *SerializeNpz(arrays));
  }

  TempFolder folder_;
  LoadOptions options_;
};

TEST_F(LoadVoxels, IntegersAreVoxelsInAnyOrder) {
  options_.voxelize.order = RowOrder::kSorted;
  const auto three = LoadInput(Npy(Ints({2, 3}, {5, -6, 7, 1, 2, 3})), options_);
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_THAT(three->coords, ElementsAre(Coordinate{0, 1, 2, 3}, Coordinate{0, 5, -6, 7}));
  EXPECT_EQ(three->channels, 0);
  EXPECT_TRUE(three->from_voxels);

  const std::vector<int32_t> batched = {1, 0, 0, 0, 0, 9, 9, 9};
  const auto four = LoadInput(Npz({{"features", Floats({2, 2}, {1, 2, 3, 4})},
                                   {"coords", MakeNpyArray({2, 4}, absl::MakeConstSpan(batched))}}),
                              options_);
  ASSERT_TRUE(four.ok()) << four.status();
  EXPECT_THAT(four->coords, ElementsAre(Coordinate{0, 9, 9, 9}, Coordinate{1, 0, 0, 0}));
  EXPECT_THAT(four->features, ElementsAre(3, 4, 1, 2));
  EXPECT_THAT(four->names, ElementsAre("f0", "f1"));
  EXPECT_EQ(four->points, 2);
}

TEST_F(LoadVoxels, RowsKeepTheOrderOfTheFile) {
  const std::vector<int32_t> coords = {1, 0, 0, 0, 0, 9, 9, 9, 1, -1, 0, 0};
  const std::string file = Npz({{"coords", MakeNpyArray({3, 4}, absl::MakeConstSpan(coords))},
                                {"features", Floats({3, 1}, {1, 2, 3})}});
  const auto scan = LoadInput(file, options_);
  ASSERT_TRUE(scan.ok()) << scan.status();
  EXPECT_THAT(scan->coords,
              ElementsAre(Coordinate{1, 0, 0, 0}, Coordinate{0, 9, 9, 9}, Coordinate{1, -1, 0, 0}));
  EXPECT_THAT(scan->features, ElementsAre(1, 2, 3));
  EXPECT_EQ(scan->order, RowOrder::kScan);
  options_.voxelize.order = RowOrder::kMorton;
  const auto morton = LoadInput(file, options_);
  ASSERT_TRUE(morton.ok()) << morton.status();
  EXPECT_THAT(morton->features, ElementsAre(2, 3, 1));
  EXPECT_EQ(morton->order, RowOrder::kMorton);
}

TEST_F(LoadVoxels, TheArrayMayBeNamed) {
  options_.read.array = "mine";
  const auto cloud = LoadInput(
      Npz({{"points", Floats({1, 3}, {0, 0, 0})}, {"mine", Ints({1, 3}, {7, 8, 9})}}), options_);
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  EXPECT_THAT(cloud->coords, ElementsAre(Coordinate{0, 7, 8, 9}));
  // Points are points, whatever else the file holds.
  options_.read.array = "";
  const auto points = LoadInput(
      Npz({{"coords", Ints({1, 3}, {7, 8, 9})}, {"points", Floats({1, 3}, {1, 1, 1})}}), options_);
  ASSERT_TRUE(points.ok()) << points.status();
  EXPECT_THAT(points->coords, ElementsAre(Coordinate{0, 20, 20, 20}));
  EXPECT_FALSE(points->from_voxels);
}

TEST_F(LoadVoxels, RowsThatAreNotFiniteAreDropped) {
  const auto cloud = LoadInput(
      Npz({{"coords", Ints({2, 3}, {1, 1, 1, 2, 2, 2})}, {"features", Floats({2, 1}, {NAN, 3})}}),
      options_);
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  EXPECT_THAT(cloud->coords, ElementsAre(Coordinate{0, 2, 2, 2}));
  EXPECT_THAT(cloud->features, ElementsAre(3));
  EXPECT_EQ(cloud->dropped, 1);
  EXPECT_THAT(LoadInput(Npz({{"coords", Ints({2, 3}, {1, 1, 1, 2, 2, 2})},
                             {"features", Floats({2, 1}, {NAN, INFINITY})}}),
                        options_),
              FailsWith(kDataLoss, "all 2 rows have NaN or Inf"));
}

TEST_F(LoadVoxels, OptionsThatChangeNothingAreTold) {
  const std::string scene = "scene:uniform?n=40&box=4";
  EXPECT_TRUE(LoadInputAsAsked(scene, options_).ok());
  options_.voxelize.size = {1, 1, 1};
  EXPECT_THAT(LoadInputAsAsked(scene, options_), FailsWith(kInvalid, "voxel_size has no meaning"));
  EXPECT_TRUE(LoadInputAsAsked("scene:sphere?n=40", options_).ok());
  options_ = {};
  options_.voxelize.rule = VoxelRule::kSpconv;
  EXPECT_THAT(LoadInputAsAsked(scene, options_), FailsWith(kInvalid, "voxel_rule has no meaning"));
  options_ = {};
  options_.read.samples = 7;
  EXPECT_THAT(LoadInputAsAsked("scene:sphere?n=40", options_),
              FailsWith(kInvalid, "samples has no meaning"));
}

TEST_F(LoadVoxels, OneTableOfSeveralMustBeNamed) {
  const std::string file = Npz({{"normals", Floats({1, 3}, {0, 0, 1})},
                                {"xyz", Floats({1, 3}, {1, 2, 3})},
                                {"intensity", Floats({1}, {7})}});
  EXPECT_THAT(LoadInput(file, options_),
              FailsWith(kInvalid, "normals and xyz could all be the points; give array"));
  options_.read.array = "xyz";
  EXPECT_TRUE(LoadInput(file, options_).ok());
}

TEST_F(LoadVoxels, WhatIsNoSetOfVoxelsIsRefused) {
  EXPECT_THAT(LoadInput(Npy(Ints({3, 3}, {1, 1, 1, 2, 2, 2, 1, 1, 1})), options_),
              FailsWith(kInvalid, "rows 0 and 2 are the same voxel (0, 1, 1, 1)"));
  EXPECT_THAT(LoadInput(Npy(Ints({2, 2}, {1, 1, 1, 1})), options_),
              FailsWith(kInvalid, "shape is [2, 2]; integer coordinates are [N, 3]"));
  EXPECT_THAT(LoadInput(Npy(Ints({0, 3}, {})), options_), FailsWith(kInvalid, "N >= 1"));
  EXPECT_THAT(LoadInput(Npy(Ints({1, 3}, {0, int64_t{kMaxCoordinate} + 1, 0})), options_),
              FailsWith(kOutOfRange, "row 0 has y = 131072; allowed are -131072 to 131071"));
  EXPECT_THAT(LoadInput(Npy(Ints({1, 3}, {0, 0, int64_t{1} << 40})), options_),
              FailsWith(kOutOfRange, "row 0 has z = 1099511627776"));
  EXPECT_THAT(LoadInput(Npy(Ints({1, 4}, {-1, 0, 0, 0})), options_),
              FailsWith(kOutOfRange, "row 0 has batch index -1"));
  EXPECT_THAT(
      LoadInput(Npz({{"coords", Ints({1, 3}, {0, 0, 0})}, {"features", Floats({2, 1}, {1, 2})}}),
                options_),
      FailsWith(kInvalid, "[features]: shape is [2, 1]; [1, C] is needed"));
  options_.read.into_unit_sphere = true;
  EXPECT_THAT(LoadInput(Npy(Ints({1, 3}, {0, 0, 0})), options_),
              FailsWith(kInvalid, "unit_sphere has no meaning here; these are voxels"));
  options_ = {};
  options_.voxelize.origin = {1, 0, 0};
  EXPECT_THAT(LoadInput(Npy(Ints({1, 3}, {0, 0, 0})), options_),
              FailsWith(kInvalid, "origin has no meaning here"));
}

TEST_F(LoadVoxels, ARangeCutsPointsAndVoxels) {
  options_.voxelize.size = {1, 1, 1};
  options_.range = *ParseRange("--range", "0,0,0,2,2,2");
  const auto points =
      LoadInput(Npy(Floats({3, 4}, {0, 0, 0, 7, 2, 0, 0, 8, 1.5, 1.5, 1.5, 9})), options_);
  ASSERT_TRUE(points.ok()) << points.status();
  EXPECT_THAT(points->coords, ElementsAre(Coordinate{0, 0, 0, 0}, Coordinate{0, 1, 1, 1}));
  EXPECT_THAT(points->features, ElementsAre(0, 0, 0, 7, 1.5, 1.5, 1.5, 9));
  EXPECT_EQ(points->cropped, 1);
  EXPECT_EQ(points->points, 2);

  const auto voxels = LoadInput(Npz({{"coords", Ints({3, 3}, {2, 0, 0, 1, 1, 1, 0, -1, 0})},
                                     {"features", Floats({3, 1}, {1, 2, 3})}}),
                                options_);
  ASSERT_TRUE(voxels.ok()) << voxels.status();
  EXPECT_THAT(voxels->coords, ElementsAre(Coordinate{0, 1, 1, 1}));
  EXPECT_THAT(voxels->features, ElementsAre(2));
  EXPECT_EQ(voxels->cropped, 2);

  const auto scene = LoadInput("scene:uniform?n=40&box=4", options_);
  ASSERT_TRUE(scene.ok()) << scene.status();
  for (const Coordinate& c : scene->coords) EXPECT_TRUE(c.x < 2 && c.y < 2 && c.z < 2);
  EXPECT_EQ(scene->size() + scene->cropped, 40);

  options_.range = *ParseRange("--range", "50,50,50,60,60,60");
  EXPECT_THAT(LoadInput(Npy(Ints({1, 3}, {0, 0, 0})), options_),
              FailsWith(kInvalid, "none of its 1 points lies in the range"));
}

TEST(ParseRange, TakesSixNumbersInOrder) {
  const auto range = ParseRange("--range", "-1,-inf,0,1.5,2,1e3");
  ASSERT_TRUE(range.ok()) << range.status();
  EXPECT_THAT(range->low, ElementsAre(-1, -HUGE_VAL, 0));
  EXPECT_THAT(range->high, ElementsAre(1.5, 2, 1000));
  for (const char* text : {"", "1", "0,0,0,1,1", "0,0,0,1,1,1,1", "0,0,0,1,1,0", "0,0,0,0,1,1",
                           "nan,0,0,1,1,1", "a,0,0,1,1,1"}) {
    EXPECT_THAT(ParseRange("--range", text), FailsWith(kInvalid, "--range '")) << text;
  }
}

}  // namespace
}  // namespace voxconv
