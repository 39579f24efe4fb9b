// SPDX-License-Identifier: Apache-2.0
// The CPU's Lovász-softmax against the fp64 oracle, central differences and the Jaccard index.
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unit_cpu.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/training_ops.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/training/reference_loss.h"

namespace voxconv {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LovaszTest : public ::testing::Test {
 protected:
  Tensor Make(int64_t rows, int64_t classes, const std::vector<float>& values) {
    return *Tensor::FromHost(values, rows, classes, context());
  }
  std::vector<float> RandomLogits(int64_t size, float most = 3) {
    std::uniform_real_distribution<float> uniform(-most, most);
    std::vector<float> values(size);
    for (float& value : values) value = uniform(random_);
    return values;
  }
  // Classes, and among them rows that are ignored.
  std::vector<int32_t> RandomLabels(int64_t rows, int64_t classes, int32_t ignored = -1) {
    std::vector<int32_t> labels(rows);
    for (int32_t& label : labels) {
      label = random_() % 6 == 0 ? ignored : static_cast<int32_t>(random_() % classes);
    }
    return labels;
  }

  struct Outcome {
    LossResult result;
    std::vector<float> gradient;
  };
  // `begin`: what the gradient's and the loss's place hold before.
  Outcome Run(const std::vector<float>& logits, const std::vector<int32_t>& labels,
              const LovaszArgs& like = {}, float begin = std::nanf("")) {
    const auto rows = static_cast<int64_t>(labels.size());
    const int64_t classes = static_cast<int64_t>(logits.size()) / rows;
    const Tensor x = Make(rows, classes, logits);
    const Tensor gradient = Make(rows, classes, std::vector<float>(logits.size(), begin));
    LovaszArgs args = like;
    args.logits = x.view();
    args.labels = labels.data();
    Outcome outcome;
    outcome.result = {.loss = begin, .weight = 17};
    const absl::Status status = cpu_.backend->training_ops()->LovaszSoftmax(
        args, gradient.view(), &outcome.result, context());
    EXPECT_TRUE(status.ok()) << status;
    outcome.gradient = *gradient.ToHost(context());
    return outcome;
  }

  static ReferenceLossResult Reference(const std::vector<double>& logits, int64_t classes,
                                       const std::vector<int32_t>& labels, int32_t ignored = -1) {
    return ComputeReferenceLoss(logits, classes, labels,
                                {.ignored = ignored, .cross_entropy = false, .lovasz = true});
  }

  const ExecutionContext& context() const { return cpu_.context; }

  UnitCpu cpu_{2};
  std::mt19937 random_{5};
};

// The class of the row is the only one that is present. Its error is 1 / 2, and so is Jaccard's.
TEST_F(LovaszTest, OfOneRowWithEqualLogits) {
  const Outcome outcome = Run({3, 3}, {1});
  EXPECT_EQ(outcome.result.loss, 0.5);
  EXPECT_EQ(outcome.result.weight, 1);
  EXPECT_EQ(outcome.result.rows, 1);
  EXPECT_EQ(outcome.result.correct, 0);
  EXPECT_THAT(outcome.gradient, ElementsAre(0.25f, -0.25f));
}

// Where all probabilities are 0 or 1, the loss is 1 less the mean Jaccard index of the classes that
// are present. This is what the extension extends.
TEST_F(LovaszTest, OfHardPredictionsIsTheJaccardLoss) {
  constexpr int64_t kClasses = 4;  // of which class 2 has no label
  const std::vector<int32_t> labels{0, 0, 0, 1, 1, 3, -1, 3}, predicted{0, 0, 1, 1, 2, 3, 0, 0};
  std::vector<float> logits(labels.size() * kClasses, -200.0f);
  for (size_t row = 0; row < labels.size(); ++row) logits[row * kClasses + predicted[row]] = 200;
  // Class 0: 2 rows of 4. Class 1: 1 of 3. Class 3: 1 of 2.
  const double expected = ((1 - 2.0 / 4) + (1 - 1.0 / 3) + (1 - 1.0 / 2)) / 3;
  const Outcome outcome = Run(logits, labels);
  EXPECT_NEAR(outcome.result.loss, expected, 1e-12);
  EXPECT_EQ(outcome.result.weight, 3);
  EXPECT_EQ(outcome.result.rows, 7);
  EXPECT_EQ(outcome.result.correct, 4);
  EXPECT_NEAR(Reference({logits.begin(), logits.end()}, kClasses, labels).loss, expected, 1e-12);
}

TEST_F(LovaszTest, IsTheOracles) {
  for (const auto& [rows, classes] :
       {std::pair<int64_t, int64_t>{1, 1}, {7, 2}, {60, 5}, {150, 21}, {300, 3}, {12, 70}}) {
    for (const int32_t ignored : {-1, 0, 255}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << classes << ", ignored " << ignored);
      const std::vector<float> logits = RandomLogits(rows * classes);
      const std::vector<int32_t> labels = RandomLabels(rows, classes, ignored);
      const float scale = 8;
      const Outcome outcome = Run(logits, labels, {.ignored = ignored, .gradient_scale = &scale});
      const ReferenceLossResult expected =
          Reference({logits.begin(), logits.end()}, classes, labels, ignored);
      EXPECT_NEAR(outcome.result.loss, expected.loss, 1e-6);
      for (size_t i = 0; i < logits.size(); ++i) {
        EXPECT_NEAR(outcome.gradient[i] / scale, expected.gradient[i], 1e-6) << "element " << i;
      }
    }
  }
}

// The oracle by central differences, and through it the operator.
TEST_F(LovaszTest, TheOraclesGradientIsTheDerivative) {
  constexpr int64_t kRows = 25, kClasses = 4;
  constexpr double kStep = 1e-6;
  const std::vector<float> floats = RandomLogits(kRows * kClasses);
  std::vector<double> logits(floats.begin(), floats.end());
  const std::vector<int32_t> labels = RandomLabels(kRows, kClasses);
  const ReferenceLossResult at = Reference(logits, kClasses, labels);
  EXPECT_GT(at.loss, 0.1);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double value = logits[i];
    logits[i] = value + kStep;
    const double above = Reference(logits, kClasses, labels).loss;
    logits[i] = value - kStep;
    const double below = Reference(logits, kClasses, labels).loss;
    logits[i] = value;
    EXPECT_NEAR(at.gradient[i], (above - below) / (2 * kStep), 1e-8) << "element " << i;
  }
}

TEST_F(LovaszTest, DoesNotDependOnTheThreads) {
  constexpr int64_t kRows = 5000, kClasses = 9;
  std::vector<float> logits = RandomLogits(kRows * kClasses);
  for (float& logit : logits) logit = std::round(logit);  // many errors are equal
  const std::vector<int32_t> labels = RandomLabels(kRows, kClasses);
  const Outcome outcome = Run(logits, labels);
  const UnitCpu other(4);
  const Tensor x = Make(kRows, kClasses, logits), gradient = Make(kRows, kClasses, logits);
  LossResult result;
  ASSERT_TRUE(other.backend->training_ops()
                  ->LovaszSoftmax({.logits = x.view(), .labels = labels.data()}, gradient.view(),
                                  &result, other.context)
                  .ok());
  EXPECT_EQ(result.loss, outcome.result.loss);
  EXPECT_EQ(*gradient.ToHost(context()), outcome.gradient);
}

TEST_F(LovaszTest, AddsToAnotherLoss) {
  const std::vector<float> logits = RandomLogits(20);
  const std::vector<int32_t> labels{0, 3, -1, 2, 1};
  const Outcome alone = Run(logits, labels), added = Run(logits, labels, {.adds = true}, 2);
  EXPECT_DOUBLE_EQ(added.result.loss, alone.result.loss + 2);
  EXPECT_EQ(added.result.weight, 17);  // what the other loss has written
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_FLOAT_EQ(added.gradient[i], alone.gradient[i] + 2);
  }
}

TEST_F(LovaszTest, WithoutRowsThatCountTheLossIsZero) {
  const Outcome outcome = Run(RandomLogits(6), {-1, 9});
  EXPECT_EQ(outcome.result.loss, 0);
  EXPECT_EQ(outcome.result.rows, 0);
  EXPECT_EQ(outcome.result.bad_labels, 1);
  EXPECT_THAT(outcome.gradient, Each(0.0f));
}

// A row whose probabilities are not numbers spoils the loss, and has NaN as its gradient.
TEST_F(LovaszTest, ALossThatIsNotFiniteReachesTheGradient) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& bad :
       {std::vector<float>{0, std::nanf("")}, {infinity, 0}, {-infinity, -infinity}}) {
    std::vector<float> logits{1, 2, 3, 4};
    logits.insert(logits.end(), bad.begin(), bad.end());
    const Outcome outcome = Run(logits, {0, 1, 1});
    EXPECT_TRUE(std::isnan(outcome.result.loss));
    EXPECT_TRUE(std::isfinite(outcome.gradient[0]));
    EXPECT_TRUE(std::isnan(outcome.gradient[4]) && std::isnan(outcome.gradient[5]));
    EXPECT_TRUE(std::isfinite(Run(logits, {0, 1, -1}).result.loss));  // it does not count
  }
  // A class without a chance has the error 1.
  EXPECT_EQ(Run({-infinity, 0}, {0}).result.loss, 1);
}

TEST_F(LovaszTest, ArgumentsThatDoNotFitAreRefusedByName) {
  const Tensor x = Make(2, 2, {1, 2, 3, 4}), wide = Make(1, 4, {1, 2, 3, 4});
  const std::vector<int32_t> labels{0, 1};
  LossResult result;
  const auto message = [&](const LovaszArgs& args, const Tensor& gradient, LossResult* to) {
    return std::string(cpu_.backend->training_ops()
                           ->LovaszSoftmax(args, gradient.view(), to, context())
                           .message());
  };
  EXPECT_THAT(message({.logits = x.view()}, x, &result), HasSubstr("lovasz_softmax: labels: null"));
  EXPECT_THAT(message({.logits = x.view(), .labels = labels.data()}, wide, &result),
              HasSubstr("lovasz_softmax: gradient"));
  EXPECT_THAT(message({.logits = x.view(), .labels = labels.data()}, x, nullptr),
              HasSubstr("lovasz_softmax: result: null"));
}

}  // namespace
}  // namespace voxconv
