// SPDX-License-Identifier: Apache-2.0
// A training in f32 on the CPU beside one on the fp64 oracle.
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/session.h"
#include "tests/support/training_networks.h"
#include "voxconv/networks/models.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/training/reference_gradients.h"
#include "voxconv/training/trainer.h"

namespace voxconv {
namespace {

// SGD with momentum, in fp64.
class Sgd64 {
 public:
  explicit Sgd64(const std::vector<std::vector<double>>& parameters) : parameters_(parameters) {
    for (const auto& values : parameters) velocity_.emplace_back(values.size(), 0.0);
  }
  void Step(const std::vector<std::vector<double>>& gradients, double rate, double momentum) {
    for (size_t p = 0; p < gradients.size(); ++p) {
      for (size_t i = 0; i < gradients[p].size(); ++i) {
        velocity_[p][i] = momentum * velocity_[p][i] + gradients[p][i];
        parameters_[p][i] -= rate * velocity_[p][i];
      }
    }
  }
  const std::vector<std::vector<double>>& parameters() const { return parameters_; }

 private:
  std::vector<std::vector<double>> parameters_, velocity_;
};

// The gradients of the last step, by parameter.
std::vector<std::vector<double>> GradientsOf(Trainer& trainer) {
  std::vector<std::vector<double>> gradients;
  for (const Parameter& parameter : trainer.graph().parameters()) {
    gradients.emplace_back();
    if (!parameter.trained()) continue;
    const auto gradient = trainer.Gradient(parameter.name);
    EXPECT_TRUE(gradient.ok()) << gradient.status();
    gradients.back().assign(gradient->begin(), gradient->end());
  }
  return gradients;
}

// The values of all trained parameters, one after another.
std::vector<double> Joined(const NetworkGraph& graph,
                           const std::vector<std::vector<double>>& parameters) {
  std::vector<double> joined;
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (!graph.parameters()[p].trained()) continue;
    joined.insert(joined.end(), parameters[p].begin(), parameters[p].end());
  }
  return joined;
}

// Each step of the trainer is that of the oracle from the same parameters. Where the input of a
// ReLU is within rounding of 0, the two may take different sides, and then a gradient differs by
// what goes through that element. So the bound holds for most steps, and a wide one for all. For
// the same reason the two trainings do not stay together, but take the same course.
TEST(TrainingCourseTest, MinkUNetFollowsTheOracleForTwentySteps) {
  constexpr int kSteps = 20;
  constexpr double kRate = 0.003;
  NetworkGraph graph = *MakeMinkUNet42(0.25, 4, 5);
  InitializeParameters(graph, 1);
  const std::vector<Coordinate> rows = WavyRows(72, 3);
  const std::vector<float> features = DistinctFeatures(rows.size() * 4);
  const std::vector<double> x(features.begin(), features.end());
  const std::vector<int32_t> labels = SomeLabels(rows.size(), 5);
  const SparseTensor input =
      *SparseTensor::Create(rows, {1, 1, 1}, features, 4, testing::CpuContext());
  const TrainingConfig config{.run = {.planner = std::make_shared<FixedPlanner>(
                                          LayerChoice{"hash", "implicit_gemm", "fused"})}};
  const auto trainer = Trainer::Create(graph, config, testing::BuiltinRegistry(), testing::Cpu());
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  const auto reference = ReferenceTraining::Create(graph, rows);
  ASSERT_TRUE(reference.ok()) << reference.status();
  const auto expect = [&](const std::vector<std::vector<double>>& parameters) {
    return *(*reference)->Compute(parameters, x, labels, {});
  };
  Sgd64 sgd(ParametersOf(graph));
  int close = 0;
  double first = 0, last = 0;
  for (int step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(step);
    const ReferenceGradients here = expect(ParametersOf(*(*trainer)->Snapshot()));
    const ReferenceGradients course = expect(sgd.parameters());
    const auto result = (*trainer)->Step(input.view(), labels, kRate);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_NEAR(result->loss.loss, here.loss, 1e-6 * here.loss);
    EXPECT_NEAR(result->loss.loss, course.loss, 0.15 * course.loss);
    const double error = reference::RelativeError(Joined(graph, GradientsOf(**trainer)),
                                                  Joined(graph, here.parameters));
    EXPECT_LE(error, 0.2);
    if (error <= 1e-4) ++close;
    sgd.Step(course.parameters, kRate, 0.9);
    if (step == 0) first = course.loss;
    last = course.loss;
  }
  EXPECT_GE(close, kSteps * 3 / 4);
  EXPECT_LT(last, 0.5 * first);
}

}  // namespace
}  // namespace voxconv
