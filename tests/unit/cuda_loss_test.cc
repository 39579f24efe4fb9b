// SPDX-License-Identifier: Apache-2.0
// The softmax cross-entropy on CUDA against the CPU's.
#include <limits>

#include "cuda_training_test_util.h"

namespace voxconv {
namespace {

constexpr int64_t kLossShapes[][2] = {{0, 4},     {1, 1},     {5, 2},       {37, 5},
                                      {500, 20},  {4099, 13}, {300, 33},    {77, 64},
                                      {20, 3000}, {7, 4097},  {100'000, 20}};

class CudaLossTest : public CudaTrainingTest {
 protected:
  // Labels of all kinds: classes, the ignored label, and labels that are no class.
  std::vector<int32_t> MakeLabels(int64_t rows, int64_t classes, int32_t ignored) {
    std::vector<int32_t> labels(rows);
    for (int32_t& label : labels) {
      const uint32_t kind = random_() % 16;
      label = kind == 0   ? ignored
              : kind == 1 ? -7
              : kind == 2 ? static_cast<int32_t>(classes)
                          : static_cast<int32_t>(random_() % classes);
    }
    return labels;
  }

  struct Options {
    double smoothing = 0;
    bool weighted = false, scaled = false;
    int32_t ignored = -1;
  };

  LossResult Run(const CrossEntropyArgs& args, const Tensor& gradient) {
    Array<LossResult> result = *AllocateArray<LossResult>(1, cuda_);
    ExpectOk(ops().CrossEntropy(args, gradient.view(), result.data(), cuda_));
    return (*CopyToHost(result, cuda_))[0];
  }

  void ExpectLoss(const Both& logits, const std::vector<int32_t>& labels, const Options& options) {
    const int64_t rows = logits.cpu.rows(), classes = logits.cpu.channels();
    const Both gradient = Make(rows, classes, logits.cuda.view().dtype);
    const Both weights = MakeVector(classes, 0.5, 2);
    const Both scale = Share({512}, 1, 1);
    const Array<int32_t> cuda_labels = *CopyToBackend<int32_t>(labels, cuda_);
    CrossEntropyArgs args{.logits = logits.cpu.view(),
                          .labels = labels.data(),
                          .class_weights = options.weighted ? OnCpu(weights) : nullptr,
                          .ignored = options.ignored,
                          .smoothing = options.smoothing,
                          .gradient_scale = options.scaled ? OnCpu(scale) : nullptr};
    LossResult expected;
    ExpectOk(cpu_ops().CrossEntropy(args, gradient.cpu.view(), &expected, cpu_));
    args.logits = logits.cuda.view();
    args.labels = cuda_labels.data();
    args.class_weights = options.weighted ? OnCuda(weights) : nullptr;
    args.gradient_scale = options.scaled ? OnCuda(scale) : nullptr;
    const LossResult result = Run(args, gradient.cuda);
    EXPECT_NEAR(result.loss, expected.loss, 4e-6 * std::max(1.0, expected.loss));
    EXPECT_NEAR(result.weight, expected.weight, 1e-12 * expected.weight);
    EXPECT_EQ(result.rows, expected.rows);
    EXPECT_EQ(result.correct, expected.correct);
    EXPECT_EQ(result.bad_labels, expected.bad_labels);
    const double largest = expected.weight > 0 ? (options.scaled ? 1024 : 2) / expected.weight : 0;
    ExpectGradient(gradient, largest);
  }

  // `largest`: what an element can be.
  void ExpectGradient(const Both& gradient, double largest) {
    const DType dtype = gradient.cuda.view().dtype;
    const double relative = dtype == DType::kBF16 ? 4e-3 : dtype == DType::kF16 ? 5e-4 : 0;
    const double spacing = dtype == DType::kF16 ? 0x1p-24 : 0;  // of subnormal halves
    const std::vector<float> cuda = *gradient.cuda.ToHost(cuda_), cpu = *gradient.cpu.ToHost(cpu_);
    ASSERT_EQ(cuda.size(), cpu.size());
    for (size_t i = 0; i < cpu.size(); ++i) {
      ASSERT_NEAR(cuda[i], cpu[i], 1e-6 * largest + relative * std::abs(cpu[i]) + spacing)
          << "element " << i;
    }
  }
};

TEST_F(CudaLossTest, AllOptions) {
  for (const DType dtype : kDTypes) {
    for (const auto& [rows, classes] : kLossShapes) {
      const Both logits = Make(rows, classes, dtype, -6, 6);
      for (const Options& options :
           {Options{}, Options{.smoothing = 0.1}, Options{.weighted = true, .ignored = 255},
            Options{.smoothing = 0.2, .weighted = true, .scaled = true, .ignored = 0}}) {
        SCOPED_TRACE(testing::Message()
                     << "[" << rows << ", " << classes << "] " << ToString(dtype) << ", smoothing "
                     << options.smoothing << ", ignored " << options.ignored);
        ExpectLoss(logits, MakeLabels(rows, classes, options.ignored), options);
      }
    }
  }
}

// Of equal logits the first is the largest.
TEST_F(CudaLossTest, TiesCountAsTheFirst) {
  for (const DType dtype : kDTypes) {
    for (const int64_t classes : {2, 20, 100}) {
      ExpectLoss(MakeWhole(1000, classes, dtype), MakeLabels(1000, classes, -1), {});
    }
  }
}

TEST_F(CudaLossTest, LargeLogits) {
  const Both logits = Make(500, 20, DType::kF32, -3000, 3000);
  const Both gradient = Make(500, 20, DType::kF32);
  const std::vector<int32_t> labels = MakeLabels(500, 20, -1);
  const Array<int32_t> cuda_labels = *CopyToBackend<int32_t>(labels, cuda_);
  LossResult expected;
  ExpectOk(cpu_ops().CrossEntropy({.logits = logits.cpu.view(), .labels = labels.data()},
                                  gradient.cpu.view(), &expected, cpu_));
  const LossResult result =
      Run({.logits = logits.cuda.view(), .labels = cuda_labels.data()}, gradient.cuda);
  EXPECT_NEAR(result.loss, expected.loss, 2e-6 * expected.loss);
  ExpectGradient(gradient, 1000 / expected.weight);  // logits themselves are only known to 2^-13
}

TEST_F(CudaLossTest, NoRowsThatCount) {
  for (const DType dtype : kDTypes) {
    const Both logits = Make(300, 20, dtype), gradient = Make(300, 20, dtype);
    for (const int32_t label : {-1, -9, 20}) {
      ExpectLoss(logits, std::vector<int32_t>(300, label), {.smoothing = 0.1});
      const Array<int32_t> labels =
          *CopyToBackend<int32_t>(std::vector<int32_t>(300, label), cuda_);
      const LossResult result =
          Run({.logits = logits.cuda.view(), .labels = labels.data()}, gradient.cuda);
      EXPECT_EQ(result.loss, 0);
      EXPECT_EQ(result.rows, 0);
      EXPECT_EQ(result.bad_labels, label == -1 ? 0 : 300);
      EXPECT_EQ(*gradient.cuda.ToHost(cuda_), std::vector<float>(300 * 20, 0.0f));
    }
  }
}

// By a NaN, by a label that has no chance, and by a logit that is not finite. Rows whose label is
// ignored do not count.
TEST_F(CudaLossTest, RowsWhoseLossIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr int64_t kRows = 10;
  for (const int64_t classes : {5, 20, 70}) {
    std::vector<float> values(kRows * classes, 1.0f);
    values[3 * classes + 4] = std::numeric_limits<float>::quiet_NaN();
    values[5 * classes + 2] = -kInfinity;
    values[7 * classes + 1] = kInfinity;
    values[8 * classes + 1] = kInfinity;
    values[9 * classes + 1] = -kInfinity;  // another class's chance
    std::vector<int32_t> labels(kRows, 2);
    labels[8] = -1;
    for (const DType dtype : kDTypes) {
      const Both logits = Share(values, kRows, classes, dtype);
      const Both gradient = MakeWhole(kRows, classes, dtype);
      const Array<int32_t> cuda_labels = *CopyToBackend<int32_t>(labels, cuda_);
      LossResult expected;
      ExpectOk(cpu_ops().CrossEntropy({.logits = logits.cpu.view(), .labels = labels.data()},
                                      gradient.cpu.view(), &expected, cpu_));
      const LossResult result =
          Run({.logits = logits.cuda.view(), .labels = cuda_labels.data()}, gradient.cuda);
      EXPECT_FALSE(std::isfinite(result.loss));
      EXPECT_FALSE(std::isfinite(expected.loss));
      EXPECT_EQ(result.rows, 9);
      const std::vector<float> cuda = *gradient.cuda.ToHost(cuda_);
      const std::vector<float> cpu = *gradient.cpu.ToHost(cpu_);
      for (int64_t i = 0; i < kRows * classes; ++i) {
        const int64_t row = i / classes;
        EXPECT_EQ(std::isnan(cuda[i]), row == 3 || row == 5 || row == 7) << "element " << i;
        EXPECT_EQ(std::isnan(cpu[i]), std::isnan(cuda[i])) << "element " << i;
        if (!std::isnan(cpu[i])) {
          EXPECT_NEAR(cuda[i], cpu[i], 1e-3) << "element " << i;
        }
      }
    }
  }
}

TEST_F(CudaLossTest, RepeatsBitwiseAndNeverWaits) {
  for (const auto& [rows, classes] : kLossShapes) {
    const Both logits = Make(rows, classes, DType::kF16, -6, 6),
               weights = MakeVector(classes, 1, 3);
    const Tensor gradient = Make(rows, classes, DType::kF16).cuda;
    const Array<int32_t> labels = *CopyToBackend<int32_t>(MakeLabels(rows, classes, -1), cuda_);
    const CrossEntropyArgs args{.logits = logits.cuda.view(),
                                .labels = labels.data(),
                                .class_weights = OnCuda(weights),
                                .smoothing = 0.1};
    LossResult first = Run(args, gradient);
    ExpectRepeats([&] {
      const LossResult result = Run(args, gradient);
      EXPECT_EQ(result.loss, first.loss);
      EXPECT_EQ(result.weight, first.weight);
      return *gradient.ToHost(cuda_);
    });
    if (rows == 0) continue;
    Array<LossResult> result = *AllocateArray<LossResult>(1, cuda_);
    ExpectQueues(3,
                 [&] { return ops().CrossEntropy(args, gradient.view(), result.data(), cuda_); });
  }
}

}  // namespace
}  // namespace voxconv
