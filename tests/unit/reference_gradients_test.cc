// SPDX-License-Identifier: Apache-2.0
// The oracle's gradients of whole networks, by central differences.
#include "voxconv/training/reference_gradients.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/training_networks.h"

namespace voxconv {
namespace {

using ::testing::HasSubstr;

// Checks some elements of each parameter's gradient.
void ExpectDerivatives(const NetworkGraph& graph, const std::vector<int32_t>& labels,
                       const std::vector<Coordinate>& rows, const ReferenceLoss& loss) {
  constexpr double kStep = 1e-6;
  const std::vector<float> features = DistinctFeatures(rows.size() * graph.in_channels());
  const std::vector<double> x(features.begin(), features.end());
  const auto training = ReferenceTraining::Create(graph, rows);
  ASSERT_TRUE(training.ok()) << training.status();
  std::vector<std::vector<double>> parameters = ParametersOf(graph);
  const auto gradients = (*training)->Compute(parameters, x, labels, loss);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  const auto loss_at = [&] { return (*training)->Compute(parameters, x, labels, loss)->loss; };
  for (size_t p = 0; p < parameters.size(); ++p) {
    SCOPED_TRACE(graph.parameters()[p].name);
    if (!graph.parameters()[p].trained()) {
      EXPECT_TRUE(gradients->parameters[p].empty());
      continue;
    }
    ASSERT_EQ(gradients->parameters[p].size(), parameters[p].size());
    const size_t stride = parameters[p].size() / 2 + 1;
    for (size_t i = 0; i < parameters[p].size(); i += stride) {
      const double value = parameters[p][i];
      parameters[p][i] = value + kStep;
      const double above = loss_at();
      parameters[p][i] = value - kStep;
      const double below = loss_at();
      parameters[p][i] = value;
      const double slope = (above - below) / (2 * kStep);
      EXPECT_NEAR(gradients->parameters[p][i], slope, 1e-7 + 1e-5 * std::abs(slope)) << i;
    }
  }
}

TEST(ReferenceGradientsTest, OfSegmentationNetworks) {
  const std::vector<Coordinate> rows = WavyRows(5);
  for (const PoolMode mode :
       {PoolMode::kMax, PoolMode::kSum, PoolMode::kAverage, PoolMode::kAveragePresent}) {
    SCOPED_TRACE(ToString(mode));
    ExpectDerivatives(SegmentationGraph(mode), SomeLabels(rows.size(), kSegmentationClasses), rows,
                      {.class_weights = {1, 0.5, 2, 1}, .smoothing = 0.1});
  }
}

TEST(ReferenceGradientsTest, OfTheLovaszSoftmaxLoss) {
  const std::vector<Coordinate> rows = WavyRows(5);
  const std::vector<int32_t> labels = SomeLabels(rows.size(), kSegmentationClasses);
  for (const bool cross_entropy : {false, true}) {
    ExpectDerivatives(SegmentationGraph(PoolMode::kMax), labels, rows,
                      {.cross_entropy = cross_entropy, .lovasz = true});
  }
}

TEST(ReferenceGradientsTest, OfClassificationNetworks) {
  const std::vector<Coordinate> rows = WavyRows(5);
  for (const PoolMode mode : {PoolMode::kMax, PoolMode::kSum, PoolMode::kAveragePresent}) {
    SCOPED_TRACE(ToString(mode));
    ExpectDerivatives(ClassificationGraph(PoolMode::kMax, mode), {2, 0}, rows, {});
  }
}

// The given sides of ReLUs are taken: those of the oracle itself change nothing, and another one
// is counted, and lets through what it should.
TEST(ReferenceGradientsTest, TakesTheSidesOfReLUs) {
  GraphBuilder b("relu");
  const int output = b.Linear("linear", b.Relu("relu", b.Input(2)), 2);
  NetworkGraph graph = *std::move(b).Build(output);
  InitializeParameters(graph, 1);
  const std::vector<Coordinate> rows = {{0, 0, 0, 0}, {0, 1, 0, 0}};
  const auto training = *ReferenceTraining::Create(graph, rows);
  const std::vector<double> x = {3, -1, -4, 2};
  const auto compute = [&](const std::vector<double>& features,
                           const ReferenceTraining::ReluSides& sides) {
    return *training->Compute(ParametersOf(graph), features, {{0, 1}}, {}, {}, sides);
  };
  const ReferenceGradients own = compute(x, {}), same = compute(x, {{}, {1, 0, 0, 1}, {}});
  EXPECT_EQ(same.parameters, own.parameters);
  EXPECT_EQ(same.forced, 0);
  // What passes is the input itself, and what does not is 0.
  const ReferenceGradients other = compute(x, {{}, {1, 1, 0, 0}, {}});
  EXPECT_EQ(other.forced, 2);
  EXPECT_NEAR(other.furthest_forced, 2 / std::sqrt(7.5), 1e-12);
  EXPECT_NE(other.logits, own.logits);
  EXPECT_EQ(other.logits, compute({3, -1, -4, -2}, {{}, {1, 1, 0, 0}, {}}).logits);
  const auto wrong = training->Compute(ParametersOf(graph), x, {{0, 1}}, {}, {}, {{}, {1}, {}});
  EXPECT_THAT(std::string(wrong.status().message()), HasSubstr("sides: not one for each element"));
}

TEST(ReferenceGradientsTest, RefusesWhatDoesNotFit) {
  const std::vector<Coordinate> rows = WavyRows(3);
  const NetworkGraph graph = ClassificationGraph(PoolMode::kMax, PoolMode::kMax);
  const auto training = ReferenceTraining::Create(graph, rows);
  ASSERT_TRUE(training.ok()) << training.status();
  const std::vector<double> x(rows.size() * 3, 0.5);
  EXPECT_THAT(
      std::string((*training)->Compute(ParametersOf(graph), x, {{0, 3}}, {}).status().message()),
      HasSubstr("labels: no class"));
  EXPECT_THAT(std::string((*training)
                              ->Compute(ParametersOf(graph), x, std::vector<int32_t>{0}, {})
                              .status()
                              .message()),
              HasSubstr("labels: not one for each row"));
}

}  // namespace
}  // namespace voxconv
