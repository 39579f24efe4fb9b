// SPDX-License-Identifier: Apache-2.0
// What the tests of trainers on CUDA share.
#ifndef VOXCONV_TESTS_UNIT_TRAINER_CUDA_TEST_UTIL_H_
#define VOXCONV_TESTS_UNIT_TRAINER_CUDA_TEST_UTIL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/session.h"
#include "tests/support/training_networks.h"
#include "unit_cuda.h"
#include "voxconv/training/trainer.h"

namespace voxconv {

// A scene with labels on a CUDA device, and trainers there. Skips where there is no device.
class TrainerCudaFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    unit_ = UnitCuda::Create();
    if (unit_ == nullptr) GTEST_SKIP() << "no CUDA device on this machine";
    rows_ = WavyRows(24);
    features_ = DistinctFeatures(rows_.size() * 3);
    labels_ = SomeLabels(rows_.size(), kSegmentationClasses);
    input_ = Input(features_);
  }

  // The scene's voxels with these features, [rows, 3].
  SparseTensor Input(const std::vector<float>& features) {
    return *SparseTensor::Create(rows_, {1, 1, 1}, features, 3, unit_->context);
  }

  // With a loss scale in f16.
  static TrainingConfig Config(const LayerChoice& choice, Precision precision) {
    TrainingConfig config{
        .run = {.planner = std::make_shared<FixedPlanner>(choice), .precision = precision}};
    if (precision == Precision::kF16) config.optimizer.loss_scale = 1024;
    return config;
  }

  std::unique_ptr<Trainer> Make(const NetworkGraph& graph, const TrainingConfig& config) {
    auto trainer = Trainer::Create(graph, config, testing::BuiltinRegistry(), *unit_->backend);
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    return *std::move(trainer);
  }

  std::unique_ptr<UnitCuda> unit_;
  std::vector<Coordinate> rows_;
  std::vector<float> features_;
  std::vector<int32_t> labels_;
  SparseTensor input_;
};

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_TRAINER_CUDA_TEST_UTIL_H_
