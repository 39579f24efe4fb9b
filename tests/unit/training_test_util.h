// SPDX-License-Identifier: Apache-2.0
// What the tests of trainers on the CPU share.
#ifndef VOXCONV_TESTS_UNIT_TRAINING_TEST_UTIL_H_
#define VOXCONV_TESTS_UNIT_TRAINING_TEST_UTIL_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/session.h"
#include "tests/support/training_networks.h"
#include "voxconv/training/trainer.h"

namespace voxconv {

inline const LayerChoice kDefault{"hash", "implicit_gemm", "fused"};

inline TrainingConfig Config(const LayerChoice& choice = kDefault) {
  return {.run = {.planner = std::make_shared<FixedPlanner>(choice)}};
}

// The input of a step, on the host and in the backend's memory.
struct Batch {
  std::vector<Coordinate> rows;
  std::vector<float> features;
  std::vector<int32_t> labels;
  SparseTensor tensor;

  Batch(std::vector<Coordinate> given, int64_t channels, std::vector<int32_t> given_labels)
      : rows(std::move(given)),
        features(DistinctFeatures(rows.size() * channels)),
        labels(std::move(given_labels)),
        tensor(*SparseTensor::Create(rows, {1, 1, 1}, features, channels, testing::CpuContext())) {}

  std::vector<double> Features64() const { return {features.begin(), features.end()}; }
};

inline std::unique_ptr<Trainer> MakeTrainer(const NetworkGraph& graph,
                                            const TrainingConfig& config) {
  auto trainer = Trainer::Create(graph, config, testing::BuiltinRegistry(), testing::Cpu());
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  return *std::move(trainer);
}

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_TRAINING_TEST_UTIL_H_
