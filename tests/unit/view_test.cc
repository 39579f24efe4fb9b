// SPDX-License-Identifier: Apache-2.0
// Pages that show voxels: what they colour by, how many they have, and that names are no HTML.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/brute_force_plugins.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/registry.h"
#include "voxconv/view/cloud_view.h"
#include "voxconv/view/page.h"

namespace voxconv::view {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class ViewTest : public ::testing::Test {
 protected:
  ViewTest() {
    backend_ = *CpuBackend::Create({.threads = 1});
    context_ = {backend_.get(), &backend_->main_stream(), nullptr};
    EXPECT_TRUE(RegisterBruteForce(registry_).ok());
    mapping_ = *registry_.mappings().Create("brute_force", BackendKind::kCpu);
  }

  // Three voxels in a row along z, and one far away.
  static VoxelizedCloud Cloud() {
    VoxelizedCloud cloud;
    cloud.coords = {{0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 0, 2}, {0, 9, 9, 9}};
    cloud.features = {1, 10, 2, 20, 3, 30, 4, 40};
    cloud.channels = 2;
    cloud.names = {"x", "<b>"};
    return cloud;
  }

  std::unique_ptr<CpuBackend> backend_;
  ExecutionContext context_;
  Registry registry_;
  std::unique_ptr<const Mapping> mapping_;
};

TEST_F(ViewTest, FeaturesAndNeighboursColourACloud) {
  const VoxelSet set = ViewCloud("input", Cloud());
  ASSERT_THAT(set.colourings, SizeIs(2));
  EXPECT_EQ(set.colourings[0].name, "feature x");
  EXPECT_THAT(set.colourings[0].values, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(set.colourings[1].values, ElementsAre(10, 20, 30, 40));
  const CoordinateSetPtr coordinates = *MakeCoordinates(Cloud(), context_);
  const absl::StatusOr<Colouring> neighbours = CountNeighbours(*mapping_, coordinates, context_);
  ASSERT_TRUE(neighbours.ok()) << neighbours.status();
  EXPECT_THAT(neighbours->values, ElementsAre(2, 3, 2, 1));
}

TEST_F(ViewTest, SamplesOfABatchHaveAColouring) {
  VoxelizedCloud cloud = Cloud();
  cloud.coords[3].b = 1;
  const VoxelSet set = ViewCloud("input", cloud);
  ASSERT_THAT(set.colourings, SizeIs(3));
  EXPECT_THAT(set.colourings[2].values, ElementsAre(0, 0, 0, 1));
}

TEST_F(ViewTest, ALayersOutputIsColouredByNormLargestChannelAndChannels) {
  const std::vector<Coordinate> rows = {{0, 0, 0, 0}, {0, 2, 0, 0}};
  const std::vector<float> features = {3, 4, 0, 1, 2, 5};
  const SparseTensor output = *SparseTensor::Create(rows, {2, 2, 2}, features, 3, context_);
  const absl::StatusOr<VoxelSet> set = ViewLayer("head", output, {1}, context_);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->edge, (Int3{2, 2, 2}));
  EXPECT_EQ(set->coords, rows);
  ASSERT_THAT(set->colourings, SizeIs(3));
  EXPECT_EQ(set->colourings[0].values[0], 5);
  EXPECT_THAT(set->colourings[1].values, ElementsAre(1, 2));
  EXPECT_THAT(set->colourings[2].values, ElementsAre(4, 2));
  EXPECT_THAT(ViewLayer("head", output, {3}, context_).status().message(),
              HasSubstr("channel 3 of layer 'head': allowed are 0 .. 2"));
  const SparseTensor pooled(nullptr, *Tensor::Create(1, 3, DType::kF32, context_));
  EXPECT_THAT(ViewLayer("pool", pooled, {}, context_).status().message(),
              HasSubstr("layer 'pool'"));
}

TEST_F(ViewTest, ASampleIsSpreadOverTheRowsAndKeepsTheirNumber) {
  VoxelSet set = ViewCloud("input", Cloud());
  Sample(4, set);
  EXPECT_EQ(set.size(), 4);
  Sample(2, set);
  EXPECT_EQ(set.of, 4);
  EXPECT_THAT(set.coords, ElementsAre(Cloud().coords[0], Cloud().coords[2]));
  EXPECT_THAT(set.colourings[1].values, ElementsAre(10, 30));
}

TEST_F(ViewTest, NamesInAPageAreNoHtml) {
  VoxelSet set = ViewCloud("</script><script>alert(1)</script>", Cloud());
  const absl::StatusOr<std::string> page =
      MakePage("<i>caf\xe9 & \u2028", {"<!-- note"}, std::vector<VoxelSet>{set},
               {"/*three*/", "/*controls*/"});
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(*page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(*page, Not(HasSubstr("<i>")));
  EXPECT_THAT(*page, Not(HasSubstr("<b>")));
  EXPECT_THAT(*page, Not(HasSubstr("<!-- note")));
  EXPECT_THAT(*page, HasSubstr("<title>&lt;i&gt;caf\xef\xbf\xbd &amp; \u2028</title>"));
  EXPECT_THAT(*page, HasSubstr("\\u003c/script>\\u003cscript>alert(1)"));
  EXPECT_THAT(*page, HasSubstr("/*three*/"));
  EXPECT_THAT(*page, HasSubstr("/*controls*/"));
}

TEST_F(ViewTest, APageNeedsVoxelsAndAValueForEach) {
  const Scripts scripts;
  EXPECT_THAT(MakePage("t", {}, {}, scripts).status().message(), HasSubstr("no set of voxels"));
  VoxelSet set = ViewCloud("input", Cloud());
  set.colourings[0].values.pop_back();
  EXPECT_THAT(MakePage("t", {}, std::vector<VoxelSet>{set}, scripts).status().message(),
              HasSubstr("colouring 'feature x': 3 values; it needs one for each of 4 voxels"));
  set.colourings.clear();
  EXPECT_THAT(MakePage("t", {}, std::vector<VoxelSet>{set}, scripts).status().message(),
              HasSubstr("nothing to colour"));
  set.coords.clear();
  EXPECT_THAT(MakePage("t", {}, std::vector<VoxelSet>{set}, scripts).status().message(),
              HasSubstr("'input' has no voxels to show"));
}

TEST_F(ViewTest, AMissingScriptSaysWhatToInstall) {
  ASSERT_EQ(setenv("VOXCONV_THREE_DIR", "/nonexistent", 1), 0);
  const absl::Status status = LoadScripts().status();
  unsetenv("VOXCONV_THREE_DIR");
  EXPECT_THAT(status.message(), HasSubstr("/nonexistent/three.min.js"));
  EXPECT_THAT(status.message(), HasSubstr("install libjs-three"));
}

}  // namespace
}  // namespace voxconv::view
