// SPDX-License-Identifier: Apache-2.0
// The CPU's operators of training, against sums in f64 and central differences.
#include "voxconv/core/training_ops.h"

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unit_cpu.h"
#include "voxconv/backends/cpu/cpu_backend.h"

namespace voxconv {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TrainingOpsTest : public ::testing::Test {
 protected:
  Tensor Make(int64_t rows, int64_t channels, const std::vector<float>& values) {
    return *Tensor::FromHost(values, rows, channels, context());
  }
  Tensor Random(int64_t rows, int64_t channels) {
    return Make(rows, channels, RandomValues(rows * channels));
  }
  // Filled with NaN: whatever an operator leaves out shows.
  Tensor Output(int64_t rows, int64_t channels) {
    return Make(rows, channels, std::vector<float>(rows * channels, std::nanf("")));
  }
  std::vector<float> RandomValues(int64_t size) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(size);
    for (float& value : values) value = uniform(random_);
    return values;
  }
  std::vector<float> Host(const Tensor& tensor) { return *tensor.ToHost(context()); }

  TrainingOps& ops() { return *cpu_.backend->training_ops(); }
  const ExecutionContext& context() const { return cpu_.context; }

  UnitCpu cpu_{2};
  std::mt19937 random_{3};
};

double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// Expects `gradient` to be that of f at x, by central differences.
void ExpectGradient(const std::function<double(const std::vector<float>&)>& f,
                    const std::vector<float>& x, const std::vector<float>& gradient,
                    double tolerance) {
  constexpr float kStep = 1.0f / 2048;
  ASSERT_EQ(gradient.size(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    std::vector<float> above = x, below = x;
    above[i] += kStep;
    below[i] -= kStep;
    const double slope = (f(above) - f(below)) / (double{above[i]} - below[i]);
    EXPECT_NEAR(gradient[i], slope, tolerance) << "element " << i;
  }
}

TEST_F(TrainingOpsTest, MomentsOfAChannelWithALargeMean) {
  constexpr int64_t kRows = 50000, kChannels = 3;
  std::vector<float> values = RandomValues(kRows * kChannels);
  for (size_t i = 0; i < values.size(); i += kChannels) values[i] = 1000 + values[i] / 8;
  const Tensor x = Make(kRows, kChannels, values);
  std::vector<float> mean(kChannels), deviation(kChannels);
  ASSERT_TRUE(ops().ChannelMoments(x.view(), mean.data(), deviation.data(), context()).ok());
  for (int64_t c = 0; c < kChannels; ++c) {
    double sum = 0, squares = 0;
    for (int64_t row = 0; row < kRows; ++row) sum += values[row * kChannels + c];
    for (int64_t row = 0; row < kRows; ++row) {
      squares += std::pow(values[row * kChannels + c] - sum / kRows, 2);
    }
    EXPECT_NEAR(mean[c], sum / kRows, 1e-7 * std::abs(sum / kRows) + 1e-9);
    EXPECT_NEAR(deviation[c], squares, 1e-6 * squares);
  }
}

TEST_F(TrainingOpsTest, MomentsDoNotDependOnTheThreads) {
  const Tensor x = Random(40000, 5);
  std::vector<float> results[2];
  for (const int threads : {1, 4}) {
    const UnitCpu other(threads);
    std::vector<float>& result = results[threads / 4];
    result.resize(10);
    ASSERT_TRUE(other.backend->training_ops()
                    ->ChannelMoments(x.view(), result.data(), result.data() + 5, other.context)
                    .ok());
  }
  EXPECT_EQ(results[0], results[1]);
}

// What a batch norm in training computes, through the operators.
struct BatchNorm {
  std::vector<float> mean, deviation, inverse_std, scale, shift;
  std::vector<float> running_mean, running_variance;

  BatchNorm(TrainingOps& ops, TensorOps& dense, const Tensor& x, const std::vector<float>& gamma,
            const std::vector<float>& beta, bool relu, const Tensor& y,
            const ExecutionContext& context) {
    const int64_t channels = x.channels();
    for (auto* array : {&mean, &deviation, &inverse_std, &scale, &shift}) array->resize(channels);
    running_mean.assign(channels, 0.5f);
    running_variance.assign(channels, 2.0f);
    EXPECT_TRUE(ops.ChannelMoments(x.view(), mean.data(), deviation.data(), context).ok());
    EXPECT_TRUE(ops.BatchNormScale({.channels = channels,
                                    .rows = x.rows(),
                                    .mean = mean.data(),
                                    .deviation = deviation.data(),
                                    .gamma = gamma.data(),
                                    .beta = beta.data(),
                                    .inverse_std = inverse_std.data(),
                                    .scale = scale.data(),
                                    .shift = shift.data(),
                                    .running_mean = running_mean.data(),
                                    .running_variance = running_variance.data()},
                                   context)
                    .ok());
    EXPECT_TRUE(
        dense.ScaleShift(x.view(), scale.data(), shift.data(), relu, y.view(), context).ok());
  }
};

TEST_F(TrainingOpsTest, BatchNormNormalisesAndKeepsRunningStatistics) {
  constexpr int64_t kRows = 11, kChannels = 2;
  const Tensor x = Random(kRows, kChannels), y = Output(kRows, kChannels);
  const BatchNorm norm(ops(), cpu_.backend->tensor_ops(), x, {1, 1}, {0, 0}, false, y, context());
  const std::vector<float> from = Host(x), to = Host(y);
  for (int64_t c = 0; c < kChannels; ++c) {
    double mean = 0, squares = 0;
    for (int64_t row = 0; row < kRows; ++row) mean += to[row * kChannels + c] / kRows;
    for (int64_t row = 0; row < kRows; ++row) squares += std::pow(to[row * kChannels + c], 2);
    EXPECT_NEAR(mean, 0, 1e-6);
    EXPECT_NEAR(squares / kRows, 1, 1e-3);  // epsilon is in it
    EXPECT_NEAR(norm.running_mean[c], 0.9 * 0.5 + 0.1 * norm.mean[c], 1e-6);
    EXPECT_NEAR(norm.running_variance[c], 0.9 * 2 + 0.1 * norm.deviation[c] / (kRows - 1), 1e-6);
  }
}

TEST_F(TrainingOpsTest, BatchNormGradientsAreThoseOfTheWholeOperation) {
  constexpr int64_t kRows = 7, kChannels = 3;
  const Tensor x = Random(kRows, kChannels), dy = Random(kRows, kChannels);
  const std::vector<float> gamma{1.5f, -0.5f, 2}, beta{0.1f, 0.2f, -0.3f}, weights = Host(dy);
  for (const bool relu : {false, true}) {
    const auto loss = [&](const std::vector<float>& from, const std::vector<float>& gammas,
                          const std::vector<float>& betas) {
      const Tensor input = Make(kRows, kChannels, from), output = Output(kRows, kChannels);
      const BatchNorm run(ops(), cpu_.backend->tensor_ops(), input, gammas, betas, relu, output,
                          context());
      return Dot(Host(output), weights);
    };
    const Tensor y = Output(kRows, kChannels), dx = Output(kRows, kChannels);
    const BatchNorm norm(ops(), cpu_.backend->tensor_ops(), x, gamma, beta, relu, y, context());
    std::vector<float> sum_dy(kChannels), sum_dy_x(kChannels);
    BatchNormGradArgs args{.x = x.view(),
                           .dy = dy.view(),
                           .y = {},
                           .mean = norm.mean.data(),
                           .inverse_std = norm.inverse_std.data(),
                           .gamma = gamma.data(),
                           .sum_dy = sum_dy.data(),
                           .sum_dy_x = sum_dy_x.data(),
                           .rows = kRows};
    if (relu) args.y = y.view();
    ASSERT_TRUE(ops().BatchNormGradSums(args, context()).ok());
    ASSERT_TRUE(ops().BatchNormInputGrad(args, dx.view(), context()).ok());
    ExpectGradient([&](const auto& from) { return loss(from, gamma, beta); }, Host(x), Host(dx),
                   2e-3);
    ExpectGradient([&](const auto& from) { return loss(Host(x), from, beta); }, gamma, sum_dy_x,
                   1e-3);
    ExpectGradient([&](const auto& from) { return loss(Host(x), gamma, from); }, beta, sum_dy,
                   1e-3);
    // In place.
    const Tensor own = Make(kRows, kChannels, weights);
    args.dy = own.view();
    ASSERT_TRUE(ops().BatchNormInputGrad(args, own.view(), context()).ok());
    EXPECT_EQ(Host(own), Host(dx));
  }
}

TEST_F(TrainingOpsTest, AnEmptyBatchLeavesRunningStatisticsAlone) {
  const Tensor x = Random(0, 2), y = Output(0, 2);
  const BatchNorm norm(ops(), cpu_.backend->tensor_ops(), x, {1, 1}, {0, 0}, true, y, context());
  EXPECT_THAT(norm.running_mean, Each(0.5f));
  EXPECT_THAT(norm.running_variance, Each(2.0f));
  EXPECT_THAT(norm.mean, Each(0.0f));
}

TEST_F(TrainingOpsTest, ReluGradPassesWhatWasPositive) {
  const Tensor y = Make(1, 4, {0, 2, 0, 1}), dy = Make(1, 4, {5, 6, 7, -8});
  ASSERT_TRUE(ops().ReluGrad(y.view(), dy.view(), dy.view(), context()).ok());
  EXPECT_THAT(Host(dy), ElementsAre(0, 6, 0, -8));
}

TEST_F(TrainingOpsTest, SplitUndoesConcat) {
  const Tensor y = Make(2, 3, {1, 3, 4, 2, 5, 6}), a = Output(2, 1), b = Output(2, 2);
  ASSERT_TRUE(ops().Split(y.view(), a.view(), b.view(), context()).ok());
  EXPECT_THAT(Host(a), ElementsAre(1, 2));
  EXPECT_THAT(Host(b), ElementsAre(3, 4, 5, 6));
}

TEST_F(TrainingOpsTest, ColumnSumsAndLinearWeightGradient) {
  constexpr int64_t kRows = 70000;  // more than one wave of products
  const Tensor x = Random(kRows, 3), dy = Random(kRows, 2), gradient = Output(3, 2);
  std::vector<float> sums(2);
  ASSERT_TRUE(ops().ColumnSums(dy.view(), sums.data(), context()).ok());
  ASSERT_TRUE(
      ops()
          .LinearWeightGradient(x.view(), dy.view(), Precision::kF32, gradient.view(), context())
          .ok());
  const std::vector<float> from = Host(x), to = Host(dy), result = Host(gradient);
  double expected[3][2] = {}, expected_sums[2] = {};
  for (int64_t row = 0; row < kRows; ++row) {
    for (int c = 0; c < 2; ++c) {
      expected_sums[c] += to[row * 2 + c];
      for (int i = 0; i < 3; ++i) expected[i][c] += double{from[row * 3 + i]} * to[row * 2 + c];
    }
  }
  for (int c = 0; c < 2; ++c) {
    EXPECT_NEAR(sums[c], expected_sums[c], 1e-3);
    for (int i = 0; i < 3; ++i) EXPECT_NEAR(result[i * 2 + c], expected[i][c], 1e-2);
  }
}

TEST_F(TrainingOpsTest, SelectReadsWhatASwitchNames) {
  const Tensor x = Make(3, 2, {1, 2, 3, 4, 5, 6}), y = Output(2, 2);
  const std::vector<int32_t> switches{2, 0, -1, 1};
  ASSERT_TRUE(ops().Select(x.view(), switches.data(), y.view(), context()).ok());
  EXPECT_THAT(Host(y), ElementsAre(5, 2, 0, 4));
}

TEST_F(TrainingOpsTest, GlobalPoolGradOfEachMode) {
  const std::vector<Coordinate> rows{{0, 0, 0, 0}, {2, 0, 0, 0}, {2, 1, 0, 0}, {2, 2, 0, 0}};
  const Array<Coordinate> coordinates = *CopyToBackend<Coordinate>(rows, context());
  const Tensor x = Make(4, 1, {7, 3, 9, 9}), dy = Make(3, 1, {10, 20, 30}), dx = Output(4, 1);
  const auto run = [&](PoolMode mode, const std::vector<float>& pooled) {
    const Tensor y = Make(3, 1, pooled);
    EXPECT_TRUE(
        ops()
            .GlobalPoolGrad(coordinates, mode, x.view(), y.view(), dy.view(), dx.view(), context())
            .ok());
    return Host(dx);
  };
  EXPECT_THAT(run(PoolMode::kSum, {7, 0, 21}), ElementsAre(10, 30, 30, 30));
  EXPECT_THAT(run(PoolMode::kAveragePresent, {7, 0, 7}), ElementsAre(10, 10, 10, 10));
  EXPECT_THAT(run(PoolMode::kMax, {7, 0, 9}), ElementsAre(10, 0, 30, 0));
}

// As on CUDA.
TEST_F(TrainingOpsTest, GlobalPoolGradOfRowsOutsideIsZero) {
  const std::vector<Coordinate> rows{{1, 0, 0, 0}, {2, 0, 0, 0}, {-1, 0, 0, 0}};
  const Array<Coordinate> coordinates = *CopyToBackend<Coordinate>(rows, context());
  const Tensor ones = Make(3, 4, std::vector<float>(12, 1.0f)), dx = Output(3, 4);
  for (const int64_t samples : {2, 0}) {
    const Tensor pooled = Make(samples, 4, std::vector<float>(4 * samples, 1.0f));
    std::vector<float> expected(12, 0.0f);
    if (samples > 0) std::fill_n(expected.begin(), 4, 1.0f);
    for (const PoolMode mode : {PoolMode::kSum, PoolMode::kAveragePresent, PoolMode::kMax}) {
      ASSERT_TRUE(ops()
                      .GlobalPoolGrad(coordinates, mode, ones.view(), pooled.view(), pooled.view(),
                                      dx.view(), context())
                      .ok());
      EXPECT_EQ(Host(dx), expected) << ToString(mode);
    }
  }
}

TEST_F(TrainingOpsTest, DropoutKeepsItsShareAndTheMean) {
  constexpr int64_t kRows = 1000, kChannels = 100;
  const Tensor ones = Make(kRows, kChannels, std::vector<float>(kRows * kChannels, 1.0f));
  const Tensor y = Output(kRows, kChannels), again = Output(kRows, kChannels);
  ASSERT_TRUE(ops().Dropout(ones.view(), 0.25, 17, y.view(), context()).ok());
  ASSERT_TRUE(ops().Dropout(ones.view(), 0.25, 17, again.view(), context()).ok());
  EXPECT_EQ(Host(y), Host(again));
  const uint64_t seed = 17;  // the same seed in the backend's memory
  ASSERT_TRUE(ops().Dropout(ones.view(), 0.25, {0, &seed}, again.view(), context()).ok());
  EXPECT_EQ(Host(y), Host(again));
  int64_t kept = 0;
  for (const float value : Host(y)) {
    EXPECT_TRUE(value == 0.0f || value == 1.0f / 0.75f);
    if (value != 0.0f) ++kept;
  }
  EXPECT_NEAR(static_cast<double>(kept), 75000, 600);  // more than four standard deviations
  ASSERT_TRUE(ops().Dropout(ones.view(), 0.25, 18, again.view(), context()).ok());
  EXPECT_NE(Host(y), Host(again));
  ASSERT_TRUE(ops().Dropout(ones.view(), 0, 18, again.view(), context()).ok());
  EXPECT_EQ(Host(again), Host(ones));
}

class CrossEntropyTest : public TrainingOpsTest {
 protected:
  double Loss(const std::vector<float>& logits, const CrossEntropyArgs& like) {
    const int64_t rows = like.logits.rows, classes = like.logits.channels;
    const Tensor x = Make(rows, classes, logits), gradient = Output(rows, classes);
    CrossEntropyArgs args = like;
    args.logits = x.view();
    LossResult result;
    EXPECT_TRUE(ops().CrossEntropy(args, gradient.view(), &result, context()).ok());
    return result.loss;
  }
};

TEST_F(CrossEntropyTest, OfTwoEqualLogitsIsLogTwo) {
  const Tensor logits = Make(1, 2, {3, 3}), gradient = Output(1, 2);
  const std::vector<int32_t> labels{1};
  LossResult result;
  ASSERT_TRUE(ops()
                  .CrossEntropy({.logits = logits.view(), .labels = labels.data()}, gradient.view(),
                                &result, context())
                  .ok());
  EXPECT_NEAR(result.loss, std::log(2.0), 1e-12);
  EXPECT_THAT(Host(gradient), ElementsAre(0.5f, -0.5f));
  EXPECT_EQ(result.rows, 1);
  EXPECT_EQ(result.correct, 0);  // the first of equals is class 0
}

TEST_F(CrossEntropyTest, GradientIsTheLosssDerivative) {
  constexpr int64_t kRows = 5, kClasses = 4;
  const Tensor logits = Random(kRows, kClasses), gradient = Output(kRows, kClasses);
  const std::vector<int32_t> labels{0, 3, -1, 2, 7};  // one is ignored, one is no class
  const std::vector<float> weights{1, 0.5f, 2, 0.25f};
  for (const double smoothing : {0.0, 0.1}) {
    for (const bool weighted : {false, true}) {
      const float scale = 8;
      CrossEntropyArgs args{.logits = logits.view(),
                            .labels = labels.data(),
                            .class_weights = weighted ? weights.data() : nullptr,
                            .smoothing = smoothing,
                            .gradient_scale = &scale};
      LossResult result;
      ASSERT_TRUE(ops().CrossEntropy(args, gradient.view(), &result, context()).ok());
      EXPECT_EQ(result.rows, 3);
      EXPECT_EQ(result.bad_labels, 1);
      EXPECT_FLOAT_EQ(result.weight, weighted ? 1 + 0.25 + 2 : 3);
      std::vector<float> unscaled = Host(gradient);
      for (float& value : unscaled) value /= scale;
      ExpectGradient([&](const auto& at) { return Loss(at, args); }, Host(logits), unscaled, 1e-5);
    }
  }
}

TEST_F(CrossEntropyTest, LargeLogitsDoNotOverflow) {
  const Tensor logits = Make(2, 2, {1e4f, -1e4f, 3e38f, -3e38f}), gradient = Output(2, 2);
  const std::vector<int32_t> labels{0, 0};
  LossResult result;
  ASSERT_TRUE(ops()
                  .CrossEntropy({.logits = logits.view(), .labels = labels.data()}, gradient.view(),
                                &result, context())
                  .ok());
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(result.correct, 2);
  EXPECT_THAT(Host(gradient), Each(0.0f));
}

TEST_F(CrossEntropyTest, WithoutRowsThatCountTheLossIsZero) {
  const Tensor logits = Random(2, 3), gradient = Output(2, 3);
  const std::vector<int32_t> labels{-1, -1};
  LossResult result{.loss = 5};
  ASSERT_TRUE(ops()
                  .CrossEntropy({.logits = logits.view(), .labels = labels.data()}, gradient.view(),
                                &result, context())
                  .ok());
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(result.rows, 0);
  EXPECT_THAT(Host(gradient), Each(0.0f));
}

TEST_F(CrossEntropyTest, ALossThatIsNotFiniteReachesTheGradient) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<int32_t> labels{0};
  for (const std::vector<float>& values :
       {std::vector<float>{0, std::nanf("")}, {std::nanf(""), 0}, {-infinity, 0}, {0, infinity}}) {
    const Tensor logits = Make(1, 2, values), gradient = Output(1, 2);
    LossResult result;
    ASSERT_TRUE(ops()
                    .CrossEntropy({.logits = logits.view(), .labels = labels.data()},
                                  gradient.view(), &result, context())
                    .ok());
    EXPECT_FALSE(std::isfinite(result.loss));
    for (const float value : Host(gradient)) EXPECT_TRUE(std::isnan(value));
  }
}

TEST_F(TrainingOpsTest, ArgumentsThatDoNotFitAreRefusedByName) {
  const Tensor x = Random(3, 2), y = Output(3, 3), labelled = Output(3, 2);
  std::vector<float> sums(2);
  const auto message = [](const absl::Status& status) { return std::string(status.message()); };
  EXPECT_THAT(message(ops().ReluGrad(x.view(), y.view(), x.view(), context())),
              HasSubstr("relu_grad: dy"));
  EXPECT_THAT(message(ops().Dropout(x.view(), 1.0, 1, x.view(), context())),
              HasSubstr("dropout: rate: 1; allowed is [0, 1)"));
  EXPECT_THAT(message(ops().ColumnSums(x.view(), nullptr, context())),
              HasSubstr("column_sums: sums: null"));
  LossResult result;
  EXPECT_THAT(
      message(ops().CrossEntropy({.logits = x.view()}, labelled.view(), &result, context())),
      HasSubstr("cross_entropy: labels: null"));
  EXPECT_THAT(message(ops().Split(y.view(), x.view(), x.view(), context())), HasSubstr("split: y"));
  EXPECT_THAT(message(ops().LinearWeightGradient(x.view(), x.view(), Precision::kF16,
                                                 labelled.view(), context())),
              HasSubstr("linear_weight_gradient: precision f16 for tensors of f32"));
}

}  // namespace
}  // namespace voxconv
