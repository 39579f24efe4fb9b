// SPDX-License-Identifier: Apache-2.0
// Gradients of whole small networks in f32, by central differences of the trainer's own losses. The
// fp64 oracle's are in reference_gradients_test.cc.
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/training_networks.h"
#include "training_test_util.h"
#include "voxconv/training/trainer.h"

namespace voxconv {
namespace {

// The loss's slope along each parameter's gradient, by central differences of the trainer's own
// steps in f32, is the gradient's norm.
void ExpectSlopesAreGradients(const NetworkGraph& graph, const Batch& batch, LossKind loss) {
  TrainingConfig config = Config();
  config.loss.kind = loss;
  const std::unique_ptr<Trainer> trainer = MakeTrainer(graph, config);
  ASSERT_TRUE(trainer->Step(batch.tensor.view(), batch.labels, 0).ok());
  const Trainer::State start = *trainer->Save();
  std::vector<std::vector<float>> gradients(graph.parameters().size());
  for (size_t p = 0; p < gradients.size(); ++p) {
    const Parameter& parameter = graph.parameters()[p];
    if (parameter.trained()) gradients[p] = *trainer->Gradient(parameter.name);
  }
  for (size_t p = 0; p < gradients.size(); ++p) {
    if (gradients[p].empty()) continue;
    double norm = 0;
    for (const float g : gradients[p]) norm += double{g} * g;
    norm = std::sqrt(norm);
    if (norm < 1e-3) continue;  // below what differences of f32 losses see
    constexpr double kStep = 2e-3;
    double moved = 0;  // how far the f32 parameters lie apart, along the gradient
    const auto loss_at = [&](double step) {
      Trainer::State state = start;
      for (size_t i = 0; i < gradients[p].size(); ++i) {
        float& value = state.parameters[p][i];
        const float before = value;
        value = static_cast<float>(value + step * gradients[p][i] / norm);
        moved += (step > 0 ? 1 : -1) * (double{value} - before) * gradients[p][i] / norm;
      }
      EXPECT_TRUE(trainer->Restore(state).ok());
      return trainer->Step(batch.tensor.view(), batch.labels, 0)->loss.loss;
    };
    const double slope = (loss_at(kStep) - loss_at(-kStep)) / moved;
    EXPECT_NEAR(slope, norm, 1e-2 * norm + 2e-4) << graph.parameters()[p].name;
  }
}

TEST(TrainingSlopesTest, GradientsInF32AreSlopesOfTheLoss) {
  const std::vector<Coordinate> rows = WavyRows(9);
  const Batch voxels(rows, 3, SomeLabels(rows.size(), kSegmentationClasses));
  for (const PoolMode mode : {PoolMode::kMax, PoolMode::kAverage}) {
    for (const LossKind loss : {LossKind::kCrossEntropy, LossKind::kCrossEntropyLovasz}) {
      SCOPED_TRACE(::testing::Message() << ToString(mode) << " " << ToString(loss));
      ExpectSlopesAreGradients(SegmentationGraph(mode), voxels, loss);
    }
  }
  const Batch samples(rows, 3, {2, 0});
  ExpectSlopesAreGradients(ClassificationGraph(PoolMode::kMax, PoolMode::kMax), samples,
                           LossKind::kCrossEntropy);
}

}  // namespace
}  // namespace voxconv
