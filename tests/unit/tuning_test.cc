// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/tuning.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/networks/models.h"
#include "voxconv/networks/planner.h"

namespace voxconv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ChooseSharedTest, SharesWhereMakingCostsMoreThanItSaves) {
  // User 1 is 1 ms faster with thing 1.
  const std::vector<std::vector<double>> use_ms = {{2, 5}, {4, 3}};
  const SharedChoice dear = ChooseShared({1, 2}, use_ms);
  EXPECT_THAT(dear.taken, ElementsAre(0, 0));
  EXPECT_EQ(dear.ms, 7);
  const SharedChoice cheap = ChooseShared({1, 0.5}, use_ms);
  EXPECT_THAT(cheap.taken, ElementsAre(0, 1));
  EXPECT_EQ(cheap.ms, 6.5);
}

TEST(ChooseSharedTest, KnowsWhatDoesNotRun) {
  EXPECT_THAT(
      ChooseShared({0, 0}, std::vector<std::vector<double>>{{kNoTime, 1}, {1, kNoTime}}).taken,
      ElementsAre(1, 0));
  EXPECT_THAT(ChooseShared({kNoTime}, std::vector<std::vector<double>>{{1}}).taken, IsEmpty());
  EXPECT_EQ(ChooseShared({1, 2}, {}).ms, 0);
}

// Two mappings that emit different forms, two layouts, two shapes.
IndexCosts TwoByTwo() {
  MapCosts map;
  map.query_ms = {3, 4};
  map.form = {0, 1};
  map.convert_ms = {{0, 6}, {6, 0}};
  map.transpose_ms = {kNoTime, kNoTime};
  map.convert_transposed_ms = {kNoTime, kNoTime};
  map.forward = {{.layers = 4, .candidates = {{0, 2}, {1, 1}}},
                 {.layers = 1, .candidates = {{0, 1}, {0, 0.5}, {1, 2}}}};
  return {.build_ms = {1, 1}, .maps = {map}};
}

TEST(ChooseJointlyTest, TakesTheMappingWhoseLayoutServesTheLayers) {
  // Mapping 0: 1 + 3 + 4 x 2 + 0.5 = 12.5; mapping 1: 1 + 4 + 4 x 1 + 2 = 11.
  const IndexChoice choice = ChooseJointly(TwoByTwo());
  ASSERT_EQ(choice.maps.size(), 1u);
  EXPECT_EQ(choice.ms, 11);
  EXPECT_EQ(choice.maps[0].mapping, 1);
  EXPECT_THAT(choice.maps[0].forward, ElementsAre(1, 2));
}

TEST(ChooseJointlyTest, MapsShareAnIndex) {
  IndexCosts costs = TwoByTwo();
  // A second map without layers that is a bit faster to query by mapping 0: not worth its index.
  MapCosts second = costs.maps[0];
  second.forward.clear();
  second.query_ms = {1, 1.5};
  costs.maps.push_back(second);
  const IndexChoice shared = ChooseJointly(costs);
  EXPECT_EQ(shared.maps[0].mapping, 1);
  EXPECT_EQ(shared.maps[1].mapping, 1);
  EXPECT_EQ(shared.ms, 12.5);
  costs.build_ms = {0.25, 1};
  EXPECT_EQ(ChooseJointly(costs).maps[1].mapping, 0);
}

TEST(ChooseJointlyTest, PoolingMakesItsLayoutInAnyCase) {
  IndexCosts costs = TwoByTwo();
  costs.maps[0].pairs_layout = 0;
  // Mapping 1 now pays 6 for layout 0 and may use it for free: 1 + 4 + 6 + 4 x 1 + 0.5 = 15.5.
  const IndexChoice choice = ChooseJointly(costs);
  EXPECT_EQ(choice.maps[0].mapping, 0);
  EXPECT_EQ(choice.ms, 12.5);
}

TEST(ChooseJointlyTest, SaysWhereNothingRuns) {
  IndexCosts costs = TwoByTwo();
  costs.maps[0].forward[1].candidates.clear();
  EXPECT_THAT(ChooseJointly(costs).maps, IsEmpty());
}

TEST(GroupByIndexTest, EveryConvolutionOnce) {
  const auto graph = MakeMinkUNet42(0.25, 4, 19);
  ASSERT_TRUE(graph.ok());
  size_t layers = 0, transposed = 0;
  for (const IndexGroup& index : GroupByIndex(*graph)) {
    for (const MapGroup& map : index.maps) {
      EXPECT_FALSE(map.read_as_pairs);
      for (const ShapeGroup& shape : map.shapes) {
        layers += shape.layers.size();
        if (shape.transposed) transposed += shape.layers.size();
        for (int id : shape.layers) {
          EXPECT_EQ(graph->InputChannels(graph->node(id)), shape.c_in);
          EXPECT_EQ(graph->node(id).channels, shape.c_out);
        }
      }
    }
  }
  EXPECT_EQ(layers, graph->Convolutions(/*with_shortcuts=*/false).size());
  EXPECT_EQ(transposed, 4u);
}

TEST(ThresholdCandidatesTest, OnePlanEach) {
  const auto graph = MakeSparseResNet21(1, 5);
  ASSERT_TRUE(graph.ok());
  EXPECT_THAT(ThresholdCandidates(*graph), ElementsAre(0, 16, 32, 64, 128));
}

TEST(ListedPlannerTest, RefusesAnotherNetwork) {
  const auto graph = MakeSparseResNet21(1, 5);
  ASSERT_TRUE(graph.ok());
  std::vector<PlannedLayer> layers;
  for (int id : graph->Convolutions(/*with_shortcuts=*/false)) {
    const Node& node = graph->node(id);
    layers.push_back({node.name, graph->InputChannels(node), node.channels, {"m", "d", ""}});
  }
  const auto planned = ListedPlanner(layers, {"", "", "o"}).Plan(*graph);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_EQ((*planned)[graph->Convolutions(false)[3]], (LayerChoice{"m", "d", "o"}));

  const auto wide = MakeSparseResNet21(2, 5);
  ASSERT_TRUE(wide.ok());
  EXPECT_THAT(std::string(ListedPlanner(layers, {}).Plan(*wide).status().message()),
              HasSubstr(layers[0].name));
  layers.pop_back();
  EXPECT_THAT(std::string(ListedPlanner(layers, {}).Plan(*graph).status().message()),
              HasSubstr("has no layer"));
}

}  // namespace
}  // namespace voxconv
