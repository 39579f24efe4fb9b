// SPDX-License-Identifier: Apache-2.0
// The Lovász-softmax loss on CUDA against the CPU's.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include "cuda_training_test_util.h"
#include "voxconv/backends/cuda/sample_sort_plan.h"

namespace voxconv {
namespace {

struct Shape {
  int64_t rows, classes;
};
// Each needs one sort. They are small enough for racecheck.
constexpr Shape kSmallShapes[] = {{0, 4}, {1, 1}, {5, 2}, {37, 5}, {500, 20}, {300, 33}, {77, 64}};
// The last need several sorts: of several classes each, and of one class.
constexpr Shape kLargeShapes[] = {{4099, 13},    {20, 3000},    {7, 4097},
                                  {100'000, 20}, {400'000, 13}, {2'100'000, 2}};

class CudaLovaszTest : public CudaTrainingTest {
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

  LossResult Run(const LovaszArgs& args, const Tensor& gradient, const LossResult& begin = {}) {
    Array<LossResult> result = *CopyToBackend<LossResult>(absl::MakeConstSpan(&begin, 1), cuda_);
    ExpectOk(ops().LovaszSoftmax(args, gradient.view(), result.data(), cuda_));
    return (*CopyToHost(result, cuda_))[0];
  }

  // Errors that differ by less than rounding may be sorted the other way round. A gradient then
  // differs at two rows, by one part in the rows of the class. So gradients are compared as a
  // whole.
  void ExpectLoss(const Both& logits, const std::vector<int32_t>& labels, int32_t ignored,
                  bool scaled, bool compares_gradients = true) {
    const DType dtype = logits.cuda.view().dtype;
    const int64_t rows = logits.cpu.rows(), classes = logits.cpu.channels();
    const Both gradient = Make(rows, classes, dtype), scale = Share({512}, 1, 1);
    const Array<int32_t> cuda_labels = *CopyToBackend<int32_t>(labels, cuda_);
    LovaszArgs args{.logits = logits.cpu.view(),
                    .labels = labels.data(),
                    .ignored = ignored,
                    .gradient_scale = scaled ? OnCpu(scale) : nullptr};
    LossResult expected;
    ExpectOk(cpu_ops().LovaszSoftmax(args, gradient.cpu.view(), &expected, cpu_));
    args.logits = logits.cuda.view();
    args.labels = cuda_labels.data();
    args.gradient_scale = scaled ? OnCuda(scale) : nullptr;
    const LossResult result = Run(args, gradient.cuda);
    EXPECT_NEAR(result.loss, expected.loss, 2e-6);
    EXPECT_EQ(result.weight, expected.weight);
    EXPECT_EQ(result.rows, expected.rows);
    EXPECT_EQ(result.correct, expected.correct);
    EXPECT_EQ(result.bad_labels, expected.bad_labels);
    if (!compares_gradients) return;
    const std::vector<float> cuda = *gradient.cuda.ToHost(cuda_), cpu = *gradient.cpu.ToHost(cpu_);
    ASSERT_EQ(cuda.size(), cpu.size());
    double difference = 0, norm = 0;
    for (size_t i = 0; i < cpu.size(); ++i) {
      difference += (double{cuda[i]} - cpu[i]) * (double{cuda[i]} - cpu[i]);
      norm += double{cpu[i]} * cpu[i];
    }
    const double bound = dtype == DType::kBF16 ? 4e-3 : 1e-3;
    // Of f16, whose subnormal numbers are 2^-24 apart.
    const double spacing =
        dtype == DType::kF16 ? 0x1p-25 * std::sqrt(static_cast<double>(cpu.size())) : 0;
    EXPECT_LE(std::sqrt(difference), bound * std::sqrt(norm) + spacing + 1e-30);
  }

  // With several labels that are ignored.
  void ExpectLosses(int64_t rows, int64_t classes, DType dtype) {
    SCOPED_TRACE(testing::Message() << "[" << rows << ", " << classes << "] " << ToString(dtype));
    const Both logits = Make(rows, classes, dtype, -6, 6);
    // With two classes in 16 bits, many errors are equal but for rounding.
    const bool distinct = classes > 2 || dtype == DType::kF32;
    for (const int32_t ignored : {-1, 255, 0}) {
      ExpectLoss(logits, MakeLabels(rows, classes, ignored), ignored, ignored == 0, distinct);
    }
  }
};

TEST_F(CudaLovaszTest, SmallShapes) {
  for (const DType dtype : kDTypes) {
    for (const auto& [rows, classes] : kSmallShapes) ExpectLosses(rows, classes, dtype);
  }
}

TEST_F(CudaLovaszTest, LargeShapes) {
  for (const DType dtype : kDTypes) {
    for (const auto& [rows, classes] : kLargeShapes) {
      if (rows * classes > 1'000'000 && dtype != DType::kF32) continue;  // the CPU sorts them
      ExpectLosses(rows, classes, dtype);
    }
  }
}

TEST_F(CudaLovaszTest, EqualErrorsCountInTheOrderOfTheRows) {
  const std::vector<float> logits(1000 * 4, 0.5f);  // all probabilities are exactly 1/4
  ExpectLoss(Share(logits, 1000, 4), MakeLabels(1000, 4, -1), -1, false);
}

TEST_F(CudaLovaszTest, AClassWithoutRowsDoesNotCount) {
  const Both logits = Make(400, 6, DType::kF32, -3, 3);
  std::vector<int32_t> labels(400);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = i % 2 == 0 ? 1 : 4;
  ExpectLoss(logits, labels, -1, false);
  for (const int32_t label : {-1, -9, 6}) {
    ExpectLoss(logits, std::vector<int32_t>(400, label), -1, false);
    const Tensor gradient = Make(400, 6, DType::kF32).cuda;
    const Array<int32_t> none = *CopyToBackend<int32_t>(std::vector<int32_t>(400, label), cuda_);
    const LossResult result = Run({.logits = logits.cuda.view(), .labels = none.data()}, gradient);
    EXPECT_EQ(result.loss, 0);
    EXPECT_EQ(*gradient.ToHost(cuda_), std::vector<float>(400 * 6, 0.0f));
  }
}

TEST_F(CudaLovaszTest, AddsToAnotherLoss) {
  constexpr int64_t kRows = 300, kClasses = 7;
  const Both logits = Make(kRows, kClasses, DType::kF32, -3, 3);
  const Array<int32_t> labels = *CopyToBackend<int32_t>(MakeLabels(kRows, kClasses, -1), cuda_);
  const Tensor alone = Make(kRows, kClasses, DType::kF32).cuda;
  const Tensor sum = Share(std::vector<float>(kRows * kClasses, 2.0f), kRows, kClasses).cuda;
  LovaszArgs args{.logits = logits.cuda.view(), .labels = labels.data()};
  const LossResult first = Run(args, alone);
  args.adds = true;
  const LossResult result = Run(args, sum, {.loss = 2, .weight = 17, .rows = 3});
  EXPECT_DOUBLE_EQ(result.loss, first.loss + 2);
  EXPECT_EQ(result.weight, 17);
  EXPECT_EQ(result.rows, 3);
  const std::vector<float> one = *alone.ToHost(cuda_), both = *sum.ToHost(cuda_);
  for (size_t i = 0; i < one.size(); ++i) ASSERT_EQ(both[i], one[i] + 2.0f) << "element " << i;
}

// By a NaN and by logits that are not finite. Rows whose label is ignored do not count.
TEST_F(CudaLovaszTest, RowsWhoseLossIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr int64_t kRows = 10, kClasses = 20;
  std::vector<float> values(kRows * kClasses, 1.0f);
  values[3 * kClasses + 4] = std::numeric_limits<float>::quiet_NaN();
  values[5 * kClasses + 2] = -kInfinity;  // no chance, which is an error of 1
  values[7 * kClasses + 1] = kInfinity;
  values[8 * kClasses + 1] = kInfinity;
  std::vector<int32_t> labels(kRows, 2);
  labels[8] = -1;
  for (const DType dtype : kDTypes) {
    const Both logits = Share(values, kRows, kClasses, dtype);
    const Tensor gradient = MakeWhole(kRows, kClasses, dtype).cuda;
    const Array<int32_t> cuda_labels = *CopyToBackend<int32_t>(labels, cuda_);
    const LossResult result =
        Run({.logits = logits.cuda.view(), .labels = cuda_labels.data()}, gradient);
    EXPECT_TRUE(std::isnan(result.loss));
    const std::vector<float> cuda = *gradient.ToHost(cuda_);
    for (int64_t i = 0; i < kRows * kClasses; ++i) {
      const int64_t row = i / kClasses;
      EXPECT_EQ(std::isnan(cuda[i]), row == 3 || row == 7) << "element " << i;
    }
  }
}

// Launches of SortByKey.
int64_t LaunchesOfSort(int64_t keys) {
  return keys <= SampleSortPlan::kCapacity || keys > SampleSortPlan::kMaxSize ? 1 : 3;
}

TEST_F(CudaLovaszTest, RepeatsBitwiseAndNeverWaits) {
  std::vector<Shape> shapes(std::begin(kSmallShapes), std::end(kSmallShapes));
  shapes.insert(shapes.end(), std::begin(kLargeShapes), std::end(kLargeShapes));
  for (const auto& [rows, classes] : shapes) {
    SCOPED_TRACE(testing::Message() << "[" << rows << ", " << classes << "]");
    const Both logits = Make(rows, classes, DType::kF16, -6, 6);
    const Tensor gradient = *Tensor::Create(rows, classes, DType::kF16, cuda_);
    const Array<int32_t> labels = *CopyToBackend<int32_t>(MakeLabels(rows, classes, -1), cuda_);
    const LovaszArgs args{.logits = logits.cuda.view(), .labels = labels.data()};
    const LossResult first = Run(args, gradient);
    ExpectRepeats([&] {
      EXPECT_EQ(Run(args, gradient).loss, first.loss);
      return *gradient.ToHost(cuda_);
    });
    if (rows == 0) continue;
    const int64_t per_sort = std::clamp<int64_t>((int64_t{1} << 21) / rows, 1, classes);
    int64_t launches = 3;
    for (int64_t first = 0; first < classes; first += per_sort) {
      launches += 4 + LaunchesOfSort(rows * std::min(per_sort, classes - first));
    }
    Array<LossResult> result = *AllocateArray<LossResult>(1, cuda_);
    ExpectQueues(launches,
                 [&] { return ops().LovaszSoftmax(args, gradient.view(), result.data(), cuda_); });
  }
}

}  // namespace
}  // namespace voxconv
