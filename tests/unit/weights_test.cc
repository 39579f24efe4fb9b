// SPDX-License-Identifier: Apache-2.0
// Weights of other engines and formats.
#include "voxconv/training/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "io_test_util.h"
#include "voxconv/networks/graph_builder.h"

namespace voxconv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Kernels that are not cubes, so that axes cannot be exchanged unseen.
NetworkGraph Graph() {
  GraphBuilder b("small");
  const int input = b.Input(2);
  const int conv = b.Conv("conv", input, 3, {.kernel = {3, 1, 5}, .bias = true});
  const int point = b.Conv("point", conv, 3, {.kernel = {1, 1, 1}});
  return *std::move(b).Build(b.Linear("head", b.BatchNorm("bn", point, true), 4));
}

Safetensors Content(const NetworkGraph& graph) {
  Safetensors content;
  float next = 1;
  for (const Parameter& parameter : graph.parameters()) {
    std::vector<float> values(parameter.size());
    for (float& value : values) value = next++;
    content.tensors.push_back(MakeSafeTensor(parameter.name, parameter.shape, values));
  }
  return content;
}

TEST(Weights, EveryConventionThereAndBackGivesTheSame) {
  const NetworkGraph graph = Graph();
  const Safetensors content = Content(graph);
  for (const Convention other : {Convention::kVoxconv, Convention::kSpconv,
                                 Convention::kTorchsparse, Convention::kMinkowski}) {
    WeightsFit there, back;
    const Safetensors changed =
        ConvertWeights(graph, content, Convention::kVoxconv, other, {}, there);
    const Safetensors again = ConvertWeights(graph, changed, other, Convention::kVoxconv, {}, back);
    EXPECT_TRUE(there.fits() && back.fits());
    EXPECT_EQ(back.fitting, static_cast<int64_t>(graph.parameters().size()));
    ASSERT_EQ(again.tensors.size(), content.tensors.size());
    for (size_t i = 0; i < again.tensors.size(); ++i) {
      EXPECT_EQ(again.tensors[i].shape, content.tensors[i].shape) << content.tensors[i].name;
      EXPECT_EQ(again.tensors[i].bytes, content.tensors[i].bytes) << content.tensors[i].name;
    }
  }
}

// The place of one weight, by the definition of both conventions.
TEST(Weights, SpconvsWeightsAreReordered) {
  const NetworkGraph graph = Graph();
  const Safetensors content = Content(graph);
  WeightsFit fit;
  const Safetensors changed =
      ConvertWeights(graph, content, Convention::kVoxconv, Convention::kSpconv, {}, fit);
  const SafeTensor* weight = changed.Find("conv.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_THAT(weight->shape, ElementsAre(3, 5, 1, 3, 2));  // C_out, kz, ky, kx, C_in
  const std::vector<float> ours = *ToFloat32(*content.Find("conv.weight"));
  const std::vector<float> theirs = *ToFloat32(*weight);
  for (int x = 0; x < 3; ++x) {
    for (int z = 0; z < 5; ++z) {
      for (int i = 0; i < 2; ++i) {
        for (int o = 0; o < 3; ++o) {
          EXPECT_EQ(theirs[((o * 5 + z) * 3 + x) * 2 + i], ours[((x * 5 + z) * 2 + i) * 3 + o]);
        }
      }
    }
  }
  EXPECT_THAT(changed.Find("head.weight")->shape, ElementsAre(4, 3));  // as PyTorch has it
}

TEST(Weights, WhatDoesNotFitIsNamed) {
  const NetworkGraph graph = Graph();
  Safetensors content = Content(graph);
  content.tensors[0].name = "renamed";
  const std::vector<float> wrong(6);
  content.tensors.back() = MakeSafeTensor(content.tensors.back().name, {2, 3}, wrong);
  WeightsFit fit;
  ConvertWeights(graph, content, Convention::kVoxconv, Convention::kVoxconv, {}, fit);
  EXPECT_FALSE(fit.fits());
  EXPECT_THAT(fit.missing, ElementsAre("conv.weight [15, 2, 3]"));
  EXPECT_THAT(fit.wrong, ElementsAre("head.bias is [2, 3]; [4] is needed"));
  EXPECT_THAT(fit.surplus, ElementsAre("renamed [15, 2, 3]"));
  WeightsFit named;
  ConvertWeights(graph, content, Convention::kVoxconv, Convention::kVoxconv,
                 {{"conv.weight", "renamed"}}, named);
  EXPECT_THAT(named.missing, IsEmpty());
  EXPECT_THAT(named.surplus, IsEmpty());
}

TEST(Weights, NamesAreReadFromJson) {
  const TempFolder folder;
  const NetworkGraph graph = Graph();
  const auto names = ReadWeightNames(folder.Write("a.json", R"({"bn.beta": "b"})"), graph);
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names, ElementsAre(std::pair<std::string, std::string>("bn.beta", "b")));
  for (const char* text : {"[]", "{", R"({"bn.beta": 3})", R"({"no": "b"})"}) {
    EXPECT_THAT(ReadWeightNames(folder.Write("a.json", text), graph), FailsWith(kInvalid, "a.json"))
        << text;
  }
}

TEST(Weights, FilesOfBothFormatsHoldTheSame) {
  const TempFolder folder;
  Safetensors content = Content(Graph());
  SafeTensor brain{.name = "brain", .dtype = "BF16", .shape = {1}, .bytes = ""};
  brain.bytes.assign("\x80\x3f", 2);  // 1.0
  content.tensors.push_back(brain);
  for (const char* name : {"a.npz", "a.safetensors"}) {
    const auto bytes = SerializeWeights(name, content);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto read = ReadWeights(folder.Write(name, *bytes), {});
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(read->tensors.size(), content.tensors.size());
    EXPECT_EQ(read->tensors[0].bytes, content.tensors[0].bytes);
    EXPECT_THAT(*ToFloat32(*read->Find("brain")), ElementsAre(1));
  }
  EXPECT_THAT(ReadWeights(folder.Write("a.pt", ""), {}),
              FailsWith(kInvalid, "unknown ending; allowed are .safetensors and .npz"));
  content.tensors.back().dtype = "U16";
  EXPECT_THAT(SerializeWeights("a.npz", content), FailsWith(kInvalid, "'brain': dtype U16"));
}

}  // namespace
}  // namespace voxconv
