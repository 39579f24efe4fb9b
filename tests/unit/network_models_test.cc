// SPDX-License-Identifier: Apache-2.0
// Graphs, models, initialisation and planners: all that needs no backend.
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/core/fnv.h"
#include "voxconv/networks/fold_batch_norm.h"
#include "voxconv/networks/graph_builder.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"
#include "voxconv/networks/planner.h"

namespace voxconv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ConvOptions kDown{.kind = ConvKind::kStrided, .kernel = {2, 2, 2}, .stride = {2, 2, 2}};

// "c_in>c_out kernel stride" of all convolutions but shortcuts.
std::vector<std::string> LayerTable(const NetworkGraph& graph) {
  std::vector<std::string> table;
  for (int id : graph.Convolutions(/*with_shortcuts=*/false)) {
    const Node& node = graph.node(id);
    table.push_back(absl::StrCat(graph.InputChannels(node), ">", node.channels, " k",
                                 ToString(node.geometry.kernel), " s",
                                 ToString(node.geometry.stride)));
  }
  return table;
}

std::string BuildError(GraphBuilder&& builder, int output) {
  return std::string(std::move(builder).Build(output).status().message());
}

// Published times and outputs belong to these weights.
TEST(InitializeParametersTest, WeightsStayWhatTheyWere) {
  NetworkGraph graph = *MakeMinkUNet42(0.125, 4, 5);
  InitializeParameters(graph, 11);
  Fnv1a hash;
  for (const Parameter& parameter : graph.parameters()) {
    for (const float value : parameter.values) hash.AddWord(std::bit_cast<uint32_t>(value));
  }
  EXPECT_EQ(hash.value(), 0x9b7aa793771e88ed);
}

TEST(GraphBuilderTest, RefusesChannelsThatDoNotFit) {
  GraphBuilder b("net");
  const int x = b.Input(4);
  const int narrow = b.Conv("narrow", x, 8, {}), wide = b.Conv("wide", x, 16, {});
  const int sum = b.Add("sum", narrow, wide, true);
  EXPECT_EQ(sum, -1);
  // What follows a mistake neither hides it nor crashes.
  EXPECT_EQ(BuildError(std::move(b), sum),
            "net: layer 'sum': adds 'narrow' with 8 channels and 'wide' with 16");
}

TEST(GraphBuilderTest, RefusesTensorsOnDifferentCoordinates) {
  GraphBuilder b("net");
  const int x = b.Input(4);
  const int coarse = b.Conv("coarse", x, 4, kDown);
  EXPECT_THAT(BuildError(std::move(b), b.Concat("cat", x, coarse)),
              HasSubstr("layer 'cat': concatenates 'input' and 'coarse', which lie on different"));
}

TEST(GraphBuilderTest, RefusesInversesWithoutStridedConvolution) {
  GraphBuilder a("net");
  const int x = a.Input(4);
  const int plain = a.Conv("plain", x, 4, {});
  EXPECT_THAT(BuildError(std::move(a), a.InverseConv("up", plain, 4, plain)),
              HasSubstr("layer 'up': inverts 'plain', which is no strided convolution"));
  GraphBuilder b("net");
  const int fine = b.Input(4);
  const int once = b.Conv("once", fine, 4, kDown);
  const int twice = b.Conv("twice", once, 4, kDown);
  EXPECT_THAT(BuildError(std::move(b), b.InverseConv("up", twice, 4, once)),
              HasSubstr("input 'twice' does not lie on the outputs of the strided convolution"));
}

TEST(GraphBuilderTest, RefusesBadLayers) {
  const auto error = [](auto add) {
    GraphBuilder b("net");
    const int x = b.Input(4);
    const int id = add(b, x);
    return BuildError(std::move(b), id);
  };
  EXPECT_THAT(error([](GraphBuilder& b, int x) { return b.Conv("c", x, 0, {}); }),
              HasSubstr("layer 'c': c_out 0; must be positive"));
  EXPECT_THAT(error([](GraphBuilder& b, int x) {
                return b.Conv("c", x, 4, {.kernel = {0, 3, 3}});
              }),
              HasSubstr("layer 'c': kernel 0x3x3"));
  EXPECT_THAT(error([](GraphBuilder& b, int) { return b.Relu("r", 7); }),
              HasSubstr("layer 'r': node 7; there are 1 nodes"));
  EXPECT_THAT(error([](GraphBuilder& b, int x) { return b.Relu("r", b.Relu("r", x)); }),
              HasSubstr("layer 'r': the name is taken"));
  EXPECT_THAT(error([](GraphBuilder& b, int x) { return b.Unpool("u", x, x); }),
              HasSubstr("undoes 'input', which is no pooling"));
  EXPECT_THAT(error([](GraphBuilder& b, int x) {
                return b.Conv("c", b.GlobalPool("g", x, PoolMode::kSum), 4, {});
              }),
              HasSubstr("layer 'c': input 'g' is pooled globally"));
  EXPECT_THAT(error([](GraphBuilder&, int x) { return x; }), HasSubstr("must be a layer"));
}

TEST(GraphBuilderTest, StridedLayersWithTheSameOutputsShareCoordinates) {
  GraphBuilder b("net");
  const int x = b.Input(4);
  // Quantisation does not look at the kernel, dilation does.
  const int k2 = b.Conv("k2", x, 4, kDown);
  ConvOptions other = kDown;
  other.kernel = {3, 3, 3};
  const int k3 = b.Conv("k3", x, 4, other);
  other.rule = OutputRule::kDilate;
  const int dilated = b.Conv("dilated", x, 4, other);
  const NetworkGraph graph = *std::move(b).Build(b.Add("sum", k2, k3, false));
  EXPECT_EQ(graph.node(k2).coordinates, graph.node(k3).coordinates);
  EXPECT_NE(graph.node(k2).coordinates, graph.node(dilated).coordinates);
}

TEST(GraphTest, SetParameterChecksNameAndSize) {
  NetworkGraph graph = *MakeSparseResNet21(1.0, 4);
  EXPECT_THAT(graph.SetParameter("nothing", {}).message(),
              HasSubstr("parameter 'nothing': sparseresnet21 has none of this name"));
  EXPECT_EQ(graph.SetParameter("stage1.conv.bn.gamma", {1.0f}).message(),
            "parameter 'stage1.conv.bn.gamma': 1 values; it has 16");
  EXPECT_TRUE(graph.SetParameter("stage1.conv.bn.gamma", std::vector<float>(16, 2.0f)).ok());
}

TEST(CenteredPaddingTest, ConvertsZeroBasedOffsets) {
  EXPECT_EQ(CenteredPadding({1, 1, 1}, {3, 3, 3}), (Int3{0, 0, 0}));
  EXPECT_EQ(CenteredPadding({1, 1, 0}, {3, 3, 3}), (Int3{0, 0, -1}));
  EXPECT_EQ(CenteredPadding({0, 0, 0}, {1, 1, 3}), (Int3{0, 0, -1}));
  EXPECT_EQ(CenteredPadding({0, 1, 2}, {2, 2, 2}), (Int3{0, 1, 2}));
  EXPECT_EQ(CenteredPadding({2, 2, 2}, {5, 3, 1}, {2, 2, 2}), (Int3{-2, 0, 2}));
}

TEST(ModelsTest, MinkUNet42HasThePapersLayers) {
  const NetworkGraph graph = *MakeMinkUNet42(1.0, 4, 19);
  EXPECT_THAT(
      LayerTable(graph),
      ElementsAre("4>32 k3 s1", "32>32 k3 s1",  // stem
                  "32>32 k2 s2", "32>32 k3 s1", "32>32 k3 s1", "32>32 k3 s1", "32>32 k3 s1",
                  "32>32 k2 s2", "32>64 k3 s1", "64>64 k3 s1", "64>64 k3 s1", "64>64 k3 s1",
                  "64>64 k2 s2", "64>128 k3 s1", "128>128 k3 s1", "128>128 k3 s1", "128>128 k3 s1",
                  "128>128 k2 s2", "128>256 k3 s1", "256>256 k3 s1", "256>256 k3 s1",
                  "256>256 k3 s1",  // decoder from here
                  "256>256 k2 s2", "384>256 k3 s1", "256>256 k3 s1", "256>256 k3 s1",
                  "256>256 k3 s1",  //
                  "256>128 k2 s2", "192>128 k3 s1", "128>128 k3 s1", "128>128 k3 s1",
                  "128>128 k3 s1",  //
                  "128>96 k2 s2", "128>96 k3 s1", "96>96 k3 s1", "96>96 k3 s1", "96>96 k3 s1",
                  "96>96 k2 s2", "128>96 k3 s1", "96>96 k3 s1", "96>96 k3 s1", "96>96 k3 s1"));
  EXPECT_EQ(graph.Convolutions(false).size(), 42u);
  EXPECT_EQ(graph.Convolutions(true).size(), 49u);
  EXPECT_EQ(graph.node(graph.output()).op, Op::kLinear);
  EXPECT_EQ(graph.node(graph.output()).channels, 19);
  EXPECT_EQ(graph.node(graph.output()).coordinates, 0);
  EXPECT_EQ(graph.coordinates().size(), 5u);
}

TEST(ModelsTest, SparseResNet21HasThePapersLayers) {
  const NetworkGraph graph = *MakeSparseResNet21(1.0, 5);
  EXPECT_THAT(LayerTable(graph),
              ElementsAre("5>16 k3 s1", "16>16 k3 s1", "16>16 k3 s1", "16>16 k3 s1", "16>16 k3 s1",
                          "16>32 k3 s2", "32>32 k3 s1", "32>32 k3 s1", "32>32 k3 s1",
                          "32>32 k3 s1",  //
                          "32>64 k3 s2", "64>64 k3 s1", "64>64 k3 s1", "64>64 k3 s1",
                          "64>64 k3 s1",  //
                          "64>128 k3 s2", "128>128 k3 s1", "128>128 k3 s1", "128>128 k3 s1",
                          "128>128 k3 s1", "128>128 k1x3x1 s1x2x1"));
  EXPECT_EQ(graph.Convolutions(true).size(), 21u);
}

TEST(ModelsTest, CenterPointIsStridedWithCenteredPadding) {
  const NetworkGraph graph = *MakeCenterPointEncoder(5);
  EXPECT_THAT(LayerTable(graph),
              ElementsAre("5>16 k3 s1", "16>16 k3 s1", "16>16 k3 s1", "16>16 k3 s1", "16>16 k3 s1",
                          "16>32 k3 s2", "32>32 k3 s1", "32>32 k3 s1", "32>32 k3 s1",
                          "32>32 k3 s1",  //
                          "32>64 k3 s2", "64>64 k3 s1", "64>64 k3 s1", "64>64 k3 s1",
                          "64>64 k3 s1",  //
                          "64>128 k3 s2", "128>128 k3 s1", "128>128 k3 s1", "128>128 k3 s1",
                          "128>128 k3 s1", "128>128 k1x1x3 s1x1x2"));
  std::vector<Int3> paddings;
  for (int id : graph.Convolutions()) {
    const GeometryParams& geometry = graph.node(id).geometry;
    if (geometry.kind != ConvKind::kStrided) continue;
    EXPECT_EQ(geometry.rule, OutputRule::kDilate);
    paddings.push_back(geometry.padding);
  }
  EXPECT_THAT(paddings, ElementsAre(Int3{0, 0, 0}, Int3{0, 0, 0}, Int3{0, 0, -1}, Int3{0, 0, -1}));
  EXPECT_EQ(graph.coordinates().back().tensor_stride, (Int3{8, 8, 16}));
}

// SpConv's spatial shapes: 1440 x 1440 x 41 becomes 720 x 720 x 21, 360 x 360 x 11, 180 x 180 x 5
// and 180 x 180 x 2.
TEST(ModelsTest, CenterPointHasAGrid) {
  const auto bounds_of = [](const NetworkGraph& graph) {
    std::vector<Box> bounds;
    for (int id : graph.Convolutions()) {
      const GeometryParams& geometry = graph.node(id).geometry;
      if (geometry.kind == ConvKind::kStrided) bounds.push_back(geometry.output_bounds.value());
    }
    return bounds;
  };
  EXPECT_THAT(bounds_of(*MakeCenterPointEncoder(5, 1.0, Box{{0, 0, 0}, {1439, 1439, 40}})),
              ElementsAre(Box{{0, 0, 0}, {719, 719, 20}}, Box{{0, 0, 0}, {359, 359, 10}},
                          Box{{0, 0, 0}, {179, 179, 4}}, Box{{0, 0, 0}, {179, 179, 1}}));
  // The same grid around the sensor.
  EXPECT_EQ(
      bounds_of(*MakeModel("centerpoint", {.grid = Box{{-720, -720, -32}, {719, 719, 8}}})).back(),
      (Box{{-90, -90, -2}, {89, 89, -1}}));
  for (const Box& grid :
       {Box{{4, 0, 0}, {99, 99, 40}}, Box{{0, 0, 0}, {-8, 99, 40}}, Box{{0, 0, 0}, {99, 99, 7}}}) {
    EXPECT_THAT(MakeCenterPointEncoder(5, 1.0, grid).status().message(), HasSubstr("grid"));
  }
  EXPECT_THAT(MakeModel("minkunet42", {.grid = Box{{0, 0, 0}, {9, 9, 9}}}).status().message(),
              HasSubstr("allowed with centerpoint"));
}

TEST(ModelsTest, WidthScalesAllButTheInput) {
  const NetworkGraph graph = *MakeModel("minkunet42", {.width = 0.5});
  EXPECT_EQ(LayerTable(graph)[0], "4>16 k3 s1");
  EXPECT_EQ(LayerTable(graph)[41], "48>48 k3 s1");
  EXPECT_TRUE(MakeModel("minkunet42", {.width = 1.53125}).ok());  // 49 / 32
  EXPECT_THAT(MakeModel("minkunet42", {.width = 0.3}).status().message(),
              HasSubstr("width 0.3: 32 channels become 9.6; the width must give whole"));
  for (double width : {0.0, -1.0, 1e300, std::nan("")}) {
    EXPECT_FALSE(MakeModel("sparseresnet21", {.width = width}).ok()) << width;
  }
}

TEST(ModelsTest, MakeModelRefusesWhatItDoesNotKnow) {
  EXPECT_EQ(MakeModel("resnet", {}).status().message(),
            "network 'resnet' is unknown; allowed are minkunet42, sparseresnet21, centerpoint");
  EXPECT_THAT(MakeModel("minkunet42", {.in_channels = -1}).status().message(),
              HasSubstr("channels -1; must be positive"));
  EXPECT_THAT(MakeModel("minkunet42", {.classes = -1}).status().message(), HasSubstr("classes -1"));
  for (const std::string& name : ModelNames()) EXPECT_TRUE(MakeModel(name, {}).ok()) << name;
  const NetworkGraph headless = *MakeModel("minkunet42", {.classes = 0});
  EXPECT_EQ(headless.node(headless.output()).channels, 96);
}

TEST(InitializeTest, ValuesDependOnSeedAndNameAlone) {
  NetworkGraph a = *MakeSparseResNet21(0.5, 4), b = a, c = a, other = *MakeMinkUNet42(0.5, 4, 0);
  InitializeParameters(a, 1);
  InitializeParameters(b, 1);
  InitializeParameters(c, 2);
  for (size_t i = 0; i < a.parameters().size(); ++i) {
    EXPECT_EQ(a.parameters()[i].values, b.parameters()[i].values);
    EXPECT_NE(a.parameters()[i].values, c.parameters()[i].values);
    EXPECT_EQ(static_cast<int64_t>(a.parameters()[i].values.size()), a.parameters()[i].size());
  }
  // From an independent implementation of the generator: the same bits on every machine.
  EXPECT_EQ(a.parameters()[0].name, "stage1.conv.weight");
  EXPECT_THAT(
      std::vector<float>(a.parameters()[0].values.begin(), a.parameters()[0].values.begin() + 3),
      ElementsAre(-0x1.266212p-3f, 0x1.b39f8p-5f, 0x1.d82098p-3f));
}

TEST(InitializeTest, WeightsHaveHesVariance) {
  NetworkGraph graph = *MakeSparseResNet21(1.0, 4);
  InitializeParameters(graph, 7);
  int found = 0;
  for (const Parameter& parameter : graph.parameters()) {
    if (parameter.name != "stage4.res1.conv1.weight") continue;
    ++found;
    double sum = 0, squares = 0;
    for (float value : parameter.values) {
      sum += value;
      squares += double{value} * value;
    }
    const double n = static_cast<double>(parameter.size());
    EXPECT_NEAR(sum / n, 0.0, 1e-4);
    EXPECT_NEAR(squares / n * 27 * 128, 2.0, 0.02);
  }
  EXPECT_EQ(found, 1);
}

TEST(FoldBatchNormTest, FoldsEveryBatchNormOfAResidualNetwork) {
  NetworkGraph graph = *MakeMinkUNet42(0.5, 4, 19);
  EXPECT_FALSE(FoldBatchNorm(graph).ok());  // no values yet
  InitializeParameters(graph, 3);
  const NetworkGraph folded = *FoldBatchNorm(graph);
  EXPECT_EQ(folded.Convolutions().size(), graph.Convolutions().size());
  for (const Node& node : folded.nodes()) EXPECT_NE(node.op, Op::kBatchNorm) << node.name;
  EXPECT_EQ(folded.node(folded.output()).op, Op::kLinear);
}

TEST(FoldBatchNormTest, KeepsABatchNormWhoseConvolutionHasOtherConsumers) {
  GraphBuilder b("net");
  const int conv = b.Conv("conv", b.Input(2), 2, {});
  const int norm = b.BatchNorm("bn", conv, false);
  NetworkGraph graph = *std::move(b).Build(b.Add("sum", conv, norm, false));
  InitializeParameters(graph, 1);
  EXPECT_EQ(FoldBatchNorm(graph)->nodes().size(), graph.nodes().size());
}

TEST(HeuristicPlannerTest, GroupsSparseResNet21IntoEight) {
  const NetworkGraph graph = *MakeSparseResNet21(1.0, 4);
  const std::vector<StrideGroup> groups = GroupByStride(graph);
  std::vector<std::string> table;
  for (const StrideGroup& group : groups) {
    table.push_back(absl::StrCat("s", ToString(group.stride), " t",
                                 ToString(group.accumulated_stride), " x", group.layers.size(),
                                 " c", group.max_channels));
  }
  EXPECT_THAT(table, ElementsAre("s1 t1 x5 c16", "s2 t2 x1 c32", "s1 t2 x4 c32", "s2 t4 x1 c64",
                                 "s1 t4 x4 c64", "s2 t8 x1 c128", "s1 t8 x4 c128",
                                 "s1x2x1 t8x16x8 x1 c128"));
}

TEST(HeuristicPlannerTest, AGroupIsNarrowIfNoLayerExceedsTheThreshold) {
  const NetworkGraph graph = *MakeSparseResNet21(1.0, 4);
  const auto narrow_groups = [&](int64_t threshold) {
    const HeuristicPlanner planner({.mapping = "grid",
                                    .output_coords = "sort",
                                    .narrow = "small:x=1",
                                    .wide = "large",
                                    .channel_threshold = threshold});
    const std::vector<LayerChoice> choices = *planner.Plan(graph);
    int count = 0;
    for (const StrideGroup& group : GroupByStride(graph)) {
      const bool narrow = choices[group.layers[0]].dataflow == "small:x=1";
      for (int id : group.layers) {
        EXPECT_EQ(choices[id], (LayerChoice{"grid", narrow ? "small:x=1" : "large", "sort"}));
      }
      count += narrow;
    }
    return count;
  };
  // With B = 64 and the threshold not exceeded by 64 channels themselves.
  EXPECT_EQ(narrow_groups(64), 5);
  EXPECT_EQ(narrow_groups(63), 3);
  EXPECT_EQ(narrow_groups(32), 3);
  EXPECT_EQ(narrow_groups(0), 0);
  EXPECT_EQ(narrow_groups(128), 8);
}

TEST(HeuristicPlannerTest, RefusesAMissingDataflow) {
  const NetworkGraph graph = *MakeSparseResNet21(1.0, 4);
  EXPECT_EQ(HeuristicPlanner({.narrow = "", .wide = "large"}).Plan(graph).status().message(),
            "planner: no dataflow is given for narrow layers");
  EXPECT_EQ(HeuristicPlanner({.narrow = "small", .wide = ""}).Plan(graph).status().message(),
            "planner: no dataflow is given for wide layers");
}

TEST(HeuristicPlannerTest, AnInverseConvolutionFollowsItsStridedLayer) {
  const NetworkGraph graph = *MakeMinkUNet42(1.0, 4, 19);
  const std::vector<StrideGroup> groups = GroupByStride(graph);
  ASSERT_EQ(groups.size(), 9u);
  for (const StrideGroup& group : groups) {
    if (group.stride == Int3{2, 2, 2}) {
      ASSERT_EQ(group.layers.size(), 2u);
      EXPECT_EQ(graph.node(group.layers[1]).counterpart, group.layers[0]);
    }
  }
}

TEST(OverridePlannerTest, ChangesMatchingLayersOnly) {
  const NetworkGraph graph = *MakeSparseResNet21(1.0, 4);
  const auto base = std::make_shared<FixedPlanner>(LayerChoice{"m", "d", "o"});
  const OverridePlanner planner(
      base, {{"stage?.conv", {.dataflow = "e"}}, {"stage2.*", {.mapping = "n"}}});
  const std::vector<LayerChoice> choices = *planner.Plan(graph);
  for (int id : graph.Convolutions()) {
    const std::string& name = graph.node(id).name;
    EXPECT_EQ(choices[id].mapping, name.starts_with("stage2.") ? "n" : "m") << name;
    EXPECT_EQ(choices[id].dataflow, name.ends_with(".conv") ? "e" : "d") << name;
    EXPECT_EQ(choices[id].output_coords, "o");
  }
  EXPECT_THAT(OverridePlanner(base, {{"stage9.*", {}}}).Plan(graph).status().message(),
              HasSubstr("layer pattern 'stage9.*': matches no convolution or pooling"));
}

}  // namespace
}  // namespace voxconv
