// SPDX-License-Identifier: Apache-2.0
// Steps of the trainer on CUDA, against the fp64 oracle and against other precisions.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "trainer_cuda_test_util.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/training/reference_gradients.h"
#include "voxconv/training/trainer.h"

namespace voxconv {
namespace {

class TrainerCudaTest : public TrainerCudaFixture {
 protected:
  // The losses of some steps.
  std::vector<double> Losses(Trainer& trainer, int steps) {
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
      const auto result = trainer.Step(input_.view(), labels_, 0.02);
      EXPECT_TRUE(result.ok()) << result.status();
      losses.push_back(result->loss.loss);
      EXPECT_FALSE(result->skipped);
    }
    return losses;
  }

  // One step; its loss and all gradients are those of the oracle with `loss`.
  void ExpectOraclesGradients(const NetworkGraph& graph, Trainer& trainer,
                              const ReferenceLoss& loss) {
    const auto result = trainer.Step(input_.view(), labels_, 0.1);
    ASSERT_TRUE(result.ok()) << result.status();
    const auto reference = ReferenceTraining::Create(graph, rows_);
    const std::vector<double> x(features_.begin(), features_.end());
    const auto expected = (*reference)->Compute(ParametersOf(graph), x, labels_, loss);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_NEAR(result->loss.loss, expected->loss, 1e-5 * expected->loss);
    for (size_t p = 0; p < graph.parameters().size(); ++p) {
      if (!graph.parameters()[p].trained()) continue;
      const auto gradient = trainer.Gradient(graph.parameters()[p].name);
      ASSERT_TRUE(gradient.ok()) << gradient.status();
      EXPECT_LE(reference::RelativeError(*gradient, expected->parameters[p]), 2e-3)
          << graph.parameters()[p].name;
    }
  }
};

const LayerChoice kChoices[] = {{"hash", "implicit_gemm", "fused"},
                                {"sorted_search", "gather_gemm_scatter", "fused"},
                                {"grid", "fetch_on_demand", "staged"},
                                {"perfect_hash", "hash2col", "sort_unique"},
                                {"octree", "direct", "fused"}};

TEST_F(TrainerCudaTest, GradientsInF32AreTheOracles) {
  for (const LayerChoice& choice : kChoices) {
    for (const PoolMode mode : {PoolMode::kMax, PoolMode::kAveragePresent}) {
      SCOPED_TRACE(choice.dataflow);
      const NetworkGraph graph = SegmentationGraph(mode);
      const std::unique_ptr<Trainer> trainer = Make(graph, Config(choice, Precision::kF32));
      ExpectOraclesGradients(graph, *trainer, {});
    }
  }
}

TEST_F(TrainerCudaTest, GradientsOfTheLovaszSoftmaxLossAreTheOracles) {
  const NetworkGraph graph = SegmentationGraph(PoolMode::kMax);
  for (const LossKind kind : {LossKind::kLovasz, LossKind::kCrossEntropyLovasz}) {
    SCOPED_TRACE(ToString(kind));
    TrainingConfig config = Config(kChoices[0], Precision::kF32);
    config.loss.kind = kind;
    const std::unique_ptr<Trainer> trainer = Make(graph, config);
    ExpectOraclesGradients(
        graph, *trainer, {.cross_entropy = kind == LossKind::kCrossEntropyLovasz, .lovasz = true});
  }
}

// The functions of one process that has the whole batch change nothing but the last bits.
TEST_F(TrainerCudaTest, ABatchSharedWithNobodyIsTheWholeBatch) {
  const NetworkGraph graph = SegmentationGraph(PoolMode::kMax);
  constexpr int kSteps = 5;
  TrainingConfig config = Config(kChoices[0], Precision::kF32);
  const std::vector<double> expected = Losses(*Make(graph, config), kSteps);
  int64_t moments = 0, gradients = 0, steps = 0;
  config.shared.add_moments = [&](double*, int64_t, const ExecutionContext&) {
    ++moments;
    return absl::OkStatus();
  };
  config.shared.add_norm_gradients = [&](float*, int64_t, const ExecutionContext&) {
    ++gradients;
    return absl::OkStatus();
  };
  config.shared.combine_gradients = [&](float*, int64_t, const ExecutionContext&) {
    ++steps;
    return absl::OkStatus();
  };
  const std::vector<double> losses = Losses(*Make(graph, config), kSteps);
  EXPECT_NEAR(losses[0], expected[0], 1e-6 * expected[0]);
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(losses[step], expected[step], 1e-2 * expected[step]) << "step " << step;
  }
  EXPECT_EQ(moments, gradients);
  EXPECT_EQ(moments % kSteps, 0);
  EXPECT_GT(moments, 0);
  EXPECT_EQ(steps, kSteps);
}

TEST_F(TrainerCudaTest, EveryPrecisionTakesTheCourseOfF32) {
  const NetworkGraph graph = SegmentationGraph(PoolMode::kMax);
  constexpr int kSteps = 10;
  for (const LayerChoice& choice : kChoices) {
    if (choice.dataflow == "direct") continue;  // f32 and f16 alone
    const std::vector<double> expected =
        Losses(*Make(graph, Config(choice, Precision::kF32)), kSteps);
    EXPECT_LT(expected.back(), expected.front());
    for (const Precision precision : {Precision::kTf32, Precision::kF16, Precision::kBF16}) {
      SCOPED_TRACE(choice.dataflow + " " + std::string(ToString(precision)));
      const auto trainer = Trainer::Create(graph, Config(choice, precision),
                                           testing::BuiltinRegistry(), *unit_->backend);
      if (!trainer.ok()) {
        EXPECT_EQ(trainer.status().code(), absl::StatusCode::kUnimplemented) << trainer.status();
        continue;
      }
      const std::vector<double> losses = Losses(**trainer, kSteps);
      const double bound = precision == Precision::kBF16 ? 0.1 : 0.03;
      for (int step = 0; step < kSteps; ++step) {
        EXPECT_NEAR(losses[step], expected[step], bound * expected[step]) << "step " << step;
      }
    }
  }
}

TEST_F(TrainerCudaTest, StepsAreTheSameBitsInEveryRun) {
  const NetworkGraph graph = SegmentationGraph(PoolMode::kMax);
  for (LayerChoice choice : kChoices) {
    // Its default adds atomically, and says so.
    if (choice.dataflow == "fetch_on_demand") choice.dataflow += ":fusion=separate";
    SCOPED_TRACE(choice.dataflow);
    const TrainingConfig config = Config(choice, Precision::kF32);
    const std::vector<double> first = Losses(*Make(graph, config), 4);
    for (int run = 0; run < 20; ++run) EXPECT_EQ(Losses(*Make(graph, config), 4), first);
  }
}

}  // namespace
}  // namespace voxconv
