// SPDX-License-Identifier: Apache-2.0
// Steps of optimisers on the CPU, against their formulas in f64.
#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unit_cpu.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/training_ops.h"

namespace voxconv {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSize = 5;

class TrainingStepTest : public ::testing::Test {
 protected:
  TrainingOps& ops() { return *cpu_.backend->training_ops(); }

  // Prepares a step from the gradients.
  void Prepare(const StepRule& rule) {
    double norm = 0;
    ASSERT_TRUE(ops().SquaredNorm(gradients_.data(), kSize, &norm, cpu_.context).ok());
    ASSERT_TRUE(ops().PrepareStep(rule, &norm, &state_, cpu_.context).ok());
  }
  ParameterRange Range() { return {kSize, values_.data(), gradients_.data()}; }

  UnitCpu cpu_{2};
  StepState state_;
  std::vector<float> values_{1, -2, 3, 0.5f, 0}, gradients_{0.1f, 0.2f, -0.3f, 4, 0};
  std::vector<float> first_ = std::vector<float>(kSize), second_ = std::vector<float>(kSize);
};

TEST_F(TrainingStepTest, SgdWithMomentumAndDecay) {
  for (const bool nesterov : {false, true}) {
    values_ = {1, -2, 3, 0.5f, 0};
    first_.assign(kSize, 0);
    std::vector<double> w(values_.begin(), values_.end()), v(kSize, 0.0);
    for (int step = 0; step < 3; ++step) {
      Prepare({});
      ASSERT_TRUE(ops()
                      .Step(SgdStep{.rate = 0.1,
                                    .momentum = 0.9,
                                    .weight_decay = 0.01,
                                    .nesterov = nesterov,
                                    .velocity = first_.data()},
                            Range(), &state_, cpu_.context)
                      .ok());
      for (int64_t i = 0; i < kSize; ++i) {
        const double g = gradients_[i] + 0.01 * w[i];
        v[i] = 0.9 * v[i] + g;
        w[i] -= 0.1 * (nesterov ? g + 0.9 * v[i] : v[i]);
        EXPECT_NEAR(values_[i], w[i], 1e-6);
      }
    }
  }
}

TEST_F(TrainingStepTest, AdamWCorrectsItsBiasAndDecaysApart) {
  std::vector<double> w(values_.begin(), values_.end()), m(kSize, 0.0), u(kSize, 0.0);
  for (int step = 1; step <= 3; ++step) {
    Prepare({});
    ASSERT_TRUE(ops()
                    .Step(AdamWStep{.rate = 0.01,
                                    .weight_decay = 0.1,
                                    .first = first_.data(),
                                    .second = second_.data()},
                          Range(), &state_, cpu_.context)
                    .ok());
    for (int64_t i = 0; i < kSize; ++i) {
      const double g = gradients_[i];
      m[i] = 0.9 * m[i] + 0.1 * g;
      u[i] = 0.999 * u[i] + 0.001 * g * g;
      const double mean = m[i] / (1 - std::pow(0.9, step));
      const double square = u[i] / (1 - std::pow(0.999, step));
      w[i] = w[i] * (1 - 0.01 * 0.1) - 0.01 * mean / (std::sqrt(square) + 1e-8);
      EXPECT_NEAR(values_[i], w[i], 1e-5);
    }
  }
}

// A rate in the backend's memory is the same rate.
TEST_F(TrainingStepTest, TheRateMayLieInTheBackendsMemory) {
  const std::vector<float> start = values_;
  const double rate = 0.0123456789;
  for (const bool adamw : {false, true}) {
    std::vector<float> ends[2];
    for (const bool shared : {false, true}) {
      values_ = start;
      first_.assign(kSize, 0);
      second_.assign(kSize, 0);
      state_ = {};
      Prepare({});
      const double given = shared ? 1e9 : rate;
      const double* place = shared ? &rate : nullptr;
      const SgdStep sgd{.rate = given, .shared_rate = place, .velocity = first_.data()};
      const AdamWStep step{.rate = given,
                           .weight_decay = 0.1,
                           .shared_rate = place,
                           .first = first_.data(),
                           .second = second_.data()};
      ASSERT_TRUE((adamw ? ops().Step(step, Range(), &state_, cpu_.context)
                         : ops().Step(sgd, Range(), &state_, cpu_.context))
                      .ok());
      ends[shared] = values_;
    }
    EXPECT_EQ(ends[0], ends[1]);
    EXPECT_NE(ends[0], start);
  }
}

TEST_F(TrainingStepTest, GradientsAreUnscaledAndClipped) {
  state_.loss_scale = 4;
  Prepare({.max_norm = 0.5});
  const double norm = std::sqrt(0.01 + 0.04 + 0.09 + 16) / 4;
  EXPECT_NEAR(state_.norm, norm, 1e-6);
  EXPECT_NEAR(state_.coefficient, 0.5 / norm / 4, 1e-6);
  Prepare({.max_norm = 100});
  EXPECT_EQ(state_.coefficient, 0.25f);
}

TEST_F(TrainingStepTest, AStepWithAGradientThatIsNotFiniteChangesNothing) {
  const std::vector<float> before = values_;
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    gradients_[2] = bad;
    state_ = {.loss_scale = 8, .good_steps = 3};
    Prepare({.growth_interval = 10});
    EXPECT_EQ(state_.skipped, 1);
    EXPECT_EQ(state_.skipped_steps, 1);
    EXPECT_EQ(state_.steps, 0);
    EXPECT_EQ(state_.good_steps, 0);
    EXPECT_EQ(state_.loss_scale, 4);
    ASSERT_TRUE(
        ops()
            .Step(SgdStep{.rate = 1, .velocity = first_.data()}, Range(), &state_, cpu_.context)
            .ok());
    ASSERT_TRUE(ops()
                    .Step(AdamWStep{.rate = 1, .first = first_.data(), .second = second_.data()},
                          Range(), &state_, cpu_.context)
                    .ok());
    EXPECT_EQ(values_, before);
    EXPECT_EQ(first_, std::vector<float>(kSize));
  }
}

TEST_F(TrainingStepTest, TheLossScaleGrowsAfterGoodStepsWithinItsLimits) {
  const StepRule rule{.growth_interval = 2, .min_scale = 1, .max_scale = 4};
  std::vector<float> scales;
  for (int step = 0; step < 6; ++step) {
    Prepare(rule);
    scales.push_back(state_.loss_scale);
  }
  EXPECT_EQ(scales, (std::vector<float>{1, 2, 2, 4, 4, 4}));
  EXPECT_EQ(state_.steps, 6);
  gradients_[0] = std::nanf("");
  for (int step = 0; step < 4; ++step) Prepare(rule);
  EXPECT_EQ(state_.loss_scale, 1);
}

TEST_F(TrainingStepTest, BadRulesAreRefusedByName) {
  const auto message = [](const absl::Status& status) { return std::string(status.message()); };
  const SgdStep sgd{.rate = std::nan(""), .velocity = first_.data()};
  EXPECT_THAT(message(ops().Step(sgd, Range(), &state_, cpu_.context)),
              HasSubstr("sgd: rate: nan"));
  const AdamWStep adamw{.rate = 1, .beta1 = 1, .first = first_.data(), .second = second_.data()};
  EXPECT_THAT(message(ops().Step(adamw, Range(), &state_, cpu_.context)),
              HasSubstr("adamw: beta1: 1; allowed is [0, 1)"));
  double norm = 0;
  EXPECT_THAT(message(ops().PrepareStep({.max_norm = -1}, &norm, &state_, cpu_.context)),
              HasSubstr("prepare_step: max_norm: -1"));
}

}  // namespace
}  // namespace voxconv
