// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "io_test_util.h"
#include "voxconv/io/load_input.h"

namespace voxconv {
namespace {

TEST(LoadInput, ReadsFilesAndScenes) {
  const TempFolder folder;
  LoadOptions options;
  options.voxelize.size = {1, 1, 1};
  options.voxelize.batch = 2;
  const std::string path = folder.Write("a.bin", BytesOf<float>({1.5, 2.5, 3.5, 0.5}));
  const absl::StatusOr<VoxelizedCloud> file = LoadInput(path, options);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->coords, testing::ElementsAre(Coordinate{2, 1, 2, 3}));
  EXPECT_THAT(file->names, testing::ElementsAre("x", "y", "z", "intensity"));
  const absl::StatusOr<VoxelizedCloud> scene = LoadInput("scene:blocks?n=1&edge=2", options);
  ASSERT_TRUE(scene.ok()) << scene.status();
  EXPECT_EQ(scene->size(), 8);
  EXPECT_EQ(scene->coords[0].b, 2);
  options.voxelize.batch = -1;
  EXPECT_THAT(LoadInput("scene:blocks?n=1", options), FailsWith(kInvalid, "batch index = -1"));
}

TEST(LoadInput, ErrorsNameTheInput) {
  LoadOptions options;
  EXPECT_THAT(LoadInput("no/such.bin", options), FailsWith(kNotFound, "no/such.bin"));
  EXPECT_THAT(LoadInput("scene:none", options), FailsWith(kNotFound, "scene:none"));
  options.voxelize.size = {1e-9, 1, 1};
  EXPECT_THAT(LoadInput("scene:sphere?n=5", options),
              FailsWith(kOutOfRange, "scene:sphere?n=5: point 0: x ="));
}

TEST(LoadInput, KeepsTheCountOfDroppedRows) {
  const TempFolder folder;
  const std::string path = folder.Write("a.bin", BytesOf<float>({1, 1, 1, 1, NAN, 1, 1, 1}));
  const absl::StatusOr<VoxelizedCloud> voxels = LoadInput(path, {});
  ASSERT_TRUE(voxels.ok()) << voxels.status();
  EXPECT_EQ(voxels->points, 1);
  EXPECT_EQ(voxels->dropped, 1);
}

}  // namespace
}  // namespace voxconv
