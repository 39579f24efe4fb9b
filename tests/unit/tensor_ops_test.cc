// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/tensor_ops.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/reference_cpu/convolution.h"

namespace voxconv {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

class TensorOpsTest : public ::testing::Test {
 protected:
  explicit TensorOpsTest(int threads = 2) {
    backend_ = *CpuBackend::Create({.threads = threads});
    context_ = {backend_.get(), &backend_->main_stream(), nullptr};
  }

  Tensor Make(int64_t rows, int64_t channels, const std::vector<float>& values) {
    return *Tensor::FromHost(values, rows, channels, context_);
  }
  // Filled with NaN: whatever an operator leaves out shows.
  Tensor Output(int64_t rows, int64_t channels) {
    return Make(rows, channels, std::vector<float>(rows * channels, std::nanf("")));
  }
  std::vector<float> Host(const Tensor& tensor) { return *tensor.ToHost(context_); }

  // Pairs (in, out) of every offset.
  KernelMap MakeMap(int64_t inputs, int64_t outputs,
                    const std::vector<std::vector<std::pair<int32_t, int32_t>>>& pairs) {
    std::vector<int32_t> in, out;
    std::vector<int64_t> offset_ptr{0};
    for (const auto& offset : pairs) {
      for (auto [p, q] : offset) {
        in.push_back(p);
        out.push_back(q);
      }
      offset_ptr.push_back(in.size());
    }
    PairList list{*CopyToBackend<int32_t>(in, context_), *CopyToBackend<int32_t>(out, context_)};
    return KernelMap(inputs, outputs, offset_ptr, std::move(list));
  }

  TensorOps& ops() { return backend_->tensor_ops(); }

  std::unique_ptr<CpuBackend> backend_;
  ExecutionContext context_;
};

TEST_F(TensorOpsTest, ScaleShiftScalesShiftsAndActivates) {
  const Tensor x = Make(2, 2, {1, -2, 3, 4});
  const float scale[] = {2, 3}, shift[] = {-3, 1};
  const Tensor y = Output(2, 2);
  ASSERT_TRUE(ops().ScaleShift(x.view(), scale, shift, false, y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(-1, -5, 3, 13));
  ASSERT_TRUE(ops().ScaleShift(x.view(), scale, shift, true, y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(0, 0, 3, 13));
  ASSERT_TRUE(ops().ScaleShift(x.view(), scale, nullptr, false, y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(2, -6, 6, 12));
  ASSERT_TRUE(ops().ScaleShift(x.view(), nullptr, shift, false, y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(-2, -1, 0, 5));
}

TEST_F(TensorOpsTest, ScaleShiftMayRunInPlace) {
  const Tensor x = Make(1, 3, {1, -2, 3});
  ASSERT_TRUE(ops().ScaleShift(x.view(), nullptr, nullptr, true, x.view(), context_).ok());
  EXPECT_THAT(Host(x), ElementsAre(1, 0, 3));
}

TEST_F(TensorOpsTest, ReluKeepsNaN) {
  const Tensor x = Make(1, 2, {std::nanf(""), -1});
  ASSERT_TRUE(ops().ScaleShift(x.view(), nullptr, nullptr, true, x.view(), context_).ok());
  EXPECT_TRUE(std::isnan(Host(x)[0]));
}

TEST_F(TensorOpsTest, AddAddsAndActivates) {
  const Tensor a = Make(2, 2, {1, 2, 3, 4}), b = Make(2, 2, {1, -5, 1, -4});
  const Tensor y = Output(2, 2);
  ASSERT_TRUE(ops().Add(a.view(), b.view(), false, y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(2, -3, 4, 0));
  ASSERT_TRUE(ops().Add(a.view(), b.view(), true, b.view(), context_).ok());
  EXPECT_THAT(Host(b), ElementsAre(2, 0, 4, 0));
}

TEST_F(TensorOpsTest, ConcatPutsChannelsSideBySide) {
  const Tensor a = Make(2, 1, {1, 2}), b = Make(2, 2, {3, 4, 5, 6}), y = Output(2, 3);
  ASSERT_TRUE(ops().Concat(a.view(), b.view(), y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(1, 3, 4, 2, 5, 6));
}

TEST_F(TensorOpsTest, LinearMultipliesAndAddsBias) {
  const Tensor x = Make(2, 2, {1, 2, 3, 4}), w = Make(2, 3, {1, 0, 2, 0, 1, -1});
  const float bias[] = {10, 20, 30};
  const Tensor y = Output(2, 3);
  ASSERT_TRUE(ops().Linear(x.view(), w.view(), nullptr, Precision::kF32, y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(1, 2, 0, 3, 4, 2));
  ASSERT_TRUE(ops().Linear(x.view(), w.view(), bias, Precision::kF32, y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(11, 22, 30, 13, 24, 32));
}

TEST_F(TensorOpsTest, MaxPoolRecordsSwitchesAndLowestOffsetWinsATie) {
  // Output 0 sees inputs 1 (offset 0) and 0 (offset 1), output 1 sees input 2, output 2 nothing.
  const KernelMap map = MakeMap(3, 3, {{{1, 0}}, {{0, 0}, {2, 1}}});
  const Tensor x = Make(3, 2, {5, -7, 5, -9, -3, -4}), y = Output(3, 2);
  std::vector<int32_t> switches(6, 99);
  ASSERT_TRUE(ops().Pool(map, PoolMode::kMax, x.view(), y.view(), switches.data(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(5, -7, -3, -4, 0, 0));
  EXPECT_THAT(switches, ElementsAre(1, 0, 2, 2, -1, -1));
  ASSERT_TRUE(ops().Pool(map, PoolMode::kMax, x.view(), y.view(), nullptr, context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(5, -7, -3, -4, 0, 0));
}

TEST_F(TensorOpsTest, MaxPoolKeepsNaN) {
  const KernelMap map = MakeMap(2, 1, {{{0, 0}}, {{1, 0}}});
  const Tensor x = Make(2, 2, {std::nanf(""), 1, 2, std::nanf("")}), y = Output(1, 2);
  ASSERT_TRUE(ops().Pool(map, PoolMode::kMax, x.view(), y.view(), nullptr, context_).ok());
  EXPECT_TRUE(std::isnan(Host(y)[0]) && std::isnan(Host(y)[1]));
}

TEST_F(TensorOpsTest, SumPoolDividesByNothingVolumeOrPresentVoxels) {
  const KernelMap map = MakeMap(3, 3, {{{1, 0}}, {{0, 0}, {2, 1}}, {}, {}});
  const Tensor x = Make(3, 1, {8, 16, 4}), y = Output(3, 1);
  ASSERT_TRUE(ops().Pool(map, PoolMode::kSum, x.view(), y.view(), nullptr, context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(24, 4, 0));
  ASSERT_TRUE(ops().Pool(map, PoolMode::kAverage, x.view(), y.view(), nullptr, context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(6, 1, 0));
  ASSERT_TRUE(
      ops().Pool(map, PoolMode::kAveragePresent, x.view(), y.view(), nullptr, context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(12, 4, 0));
}

TEST_F(TensorOpsTest, MaxUnpoolSendsValuesBackToTheirSwitches) {
  // Windows overlap: input 0 is the maximum of both outputs, and their values add up.
  const KernelMap map = MakeMap(2, 2, {{{0, 0}}, {{1, 0}, {0, 1}}});
  const Tensor x = Make(2, 1, {9, 5});
  const Tensor pooled = Output(2, 1);
  std::vector<int32_t> switches(2);
  ASSERT_TRUE(
      ops().Pool(map, PoolMode::kMax, x.view(), pooled.view(), switches.data(), context_).ok());
  const Tensor values = Make(2, 1, {3, 4}), y = Output(2, 1);
  ASSERT_TRUE(
      ops().Unpool(map, PoolMode::kMax, values.view(), switches.data(), y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(7, 0));
}

TEST_F(TensorOpsTest, SumUnpoolIsTheTransposeOfPooling) {
  const KernelMap map = MakeMap(3, 2, {{{1, 0}}, {{0, 0}, {2, 1}}});
  const Tensor x = Make(2, 1, {8, 6}), y = Output(3, 1);
  ASSERT_TRUE(ops().Unpool(map, PoolMode::kSum, x.view(), nullptr, y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(8, 8, 6));
  ASSERT_TRUE(ops().Unpool(map, PoolMode::kAverage, x.view(), nullptr, y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(4, 4, 3));
  ASSERT_TRUE(
      ops().Unpool(map, PoolMode::kAveragePresent, x.view(), nullptr, y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(4, 4, 6));
}

TEST_F(TensorOpsTest, GlobalPoolWorksSampleBySample) {
  // Samples out of order, and sample 1 empty.
  const std::vector<Coordinate> rows{{2, 0, 0, 0}, {0, 0, 0, 0}, {2, 1, 0, 0}};
  const CoordinateSetPtr set = *CoordinateSet::Create(rows, {1, 1, 1}, context_);
  const Tensor x = Make(3, 2, {1, -2, 3, -4, 5, -6}), y = Output(3, 2), narrow = Output(2, 2);
  ASSERT_TRUE(ops().GlobalPool(*set, PoolMode::kSum, x.view(), y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(3, -4, 0, 0, 6, -8));
  ASSERT_TRUE(ops().GlobalPool(*set, PoolMode::kMax, x.view(), y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(3, -4, 0, 0, 5, -2));
  ASSERT_TRUE(ops().GlobalPool(*set, PoolMode::kAveragePresent, x.view(), y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(3, -4, 0, 0, 3, -4));
  EXPECT_THAT(ops().GlobalPool(*set, PoolMode::kAverage, x.view(), y.view(), context_).message(),
              HasSubstr("mode average; allowed are sum, max and average_present"));
  EXPECT_EQ(ops().GlobalPool(*set, PoolMode::kSum, x.view(), narrow.view(), context_).message(),
            "global_pool: batch sample 2; y has 2 rows");
}

TEST_F(TensorOpsTest, TransposeWeightsExchangesChannelsOfEachOffset) {
  // Two offsets of [2, 3] matrices.
  const Tensor w = Make(4, 3, {1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16});
  const Tensor y = Output(6, 2);
  ASSERT_TRUE(ops().TransposeWeights(w.view(), 2, /*reversed=*/false, y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(1, 4, 2, 5, 3, 6, 11, 14, 12, 15, 13, 16));
  ASSERT_TRUE(ops().TransposeWeights(w.view(), 2, /*reversed=*/true, y.view(), context_).ok());
  EXPECT_THAT(Host(y), ElementsAre(11, 14, 12, 15, 13, 16, 1, 4, 2, 5, 3, 6));
  EXPECT_EQ(ops().TransposeWeights(w.view(), 3, false, y.view(), context_).message(),
            "transpose_weights: weights: shape [4, 3]; it must be [3, 3]");
  EXPECT_EQ(ops().TransposeWeights(w.view(), 1, false, y.view(), context_).message(),
            "transpose_weights: transposed: shape [6, 2]; it must be [3, 4]");
}

// A map of three offsets on rows that several blocks of pairs, strips of channels and tasks take;
// the last offset is empty.
class WeightGradientTest : public TensorOpsTest, public testing::WithParamInterface<int> {
 protected:
  static constexpr int64_t kInputs = 700, kOutputs = 600, kOut = 9;

  void SetUp() override {
    std::vector<std::vector<std::pair<int32_t, int32_t>>> pairs(3);
    for (int32_t q = 0; q < kOutputs; ++q) {
      pairs[0].push_back({(q * 13) % kInputs, q});
      if (q % 50 == 0) pairs[1].push_back({kInputs - 1 - q, q});
    }
    map_ = MakeMap(kInputs, kOutputs, pairs);
    x_.resize(kInputs * c_in());
    dy_.resize(kOutputs * kOut);
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = std::sin(static_cast<float>(i));
    for (size_t i = 0; i < dy_.size(); ++i) dy_[i] = std::cos(static_cast<float>(3 * i));
  }
  int64_t c_in() const { return GetParam(); }

  std::vector<float> Run(const ExecutionContext& context) {
    const Tensor x = *Tensor::FromHost(x_, kInputs, c_in(), context);
    const Tensor dy = *Tensor::FromHost(dy_, kOutputs, kOut, context);
    const Tensor gradient = *Tensor::FromHost(std::vector<float>(3 * c_in() * kOut, std::nanf("")),
                                              3 * c_in(), kOut, context);
    EXPECT_EQ(context.backend->tensor_ops().WeightGradient(
                  map_, x.view(), dy.view(), Precision::kF32, gradient.view(), context),
              absl::OkStatus());
    return *gradient.ToHost(context);
  }

  KernelMap map_;
  std::vector<float> x_, dy_;
};

TEST_P(WeightGradientTest, IsTheReferences) {
  const auto in = map_.pairs().in.array().host(), out = map_.pairs().out.array().host();
  const reference::KernelMap map{
      3, map_.offset_ptr(), {in.begin(), in.end()}, {out.begin(), out.end()}};
  const std::vector<double> expected =
      reference::BackwardWeight(map, {kInputs, kOutputs, c_in(), kOut}, x_, dy_);
  const std::vector<float> gradient = Run(context_);
  ASSERT_EQ(gradient.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    // The worst rounding of a sum of 600 terms below 1.
    ASSERT_NEAR(gradient[i], expected[i], 600 * 600 * std::ldexp(1.0, -24)) << i;
  }
  for (size_t i = 2 * c_in() * kOut; i < expected.size(); ++i) EXPECT_EQ(gradient[i], 0) << i;
}

TEST_P(WeightGradientTest, DoesNotDependOnTheNumberOfThreads) {
  const auto one = *CpuBackend::Create({.threads = 1});
  EXPECT_THAT(Run({one.get(), &one->main_stream(), nullptr}), ElementsAreArray(Run(context_)));
}

INSTANTIATE_TEST_SUITE_P(Channels, WeightGradientTest, testing::Values(1, 64, 130),
                         testing::PrintToStringParamName());

TEST_F(TensorOpsTest, WeightGradientRefusesWhatDoesNotFit) {
  const KernelMap map = MakeMap(2, 3, {{{0, 0}}, {{1, 2}}});
  const Tensor x = Output(2, 4), dy = Output(3, 5), gradient = Output(8, 5);
  const auto error = [&](const KernelMap& of, const Tensor& a, const Tensor& b, const Tensor& c) {
    return std::string(
        ops()
            .WeightGradient(of, a.view(), b.view(), Precision::kF32, c.view(), context_)
            .message());
  };
  EXPECT_EQ(error(map, dy, dy, gradient), "weight_gradient: x: shape [3, 5]; it must be [2, 5]");
  EXPECT_EQ(error(map, x, x, gradient), "weight_gradient: dy: shape [2, 4]; it must be [3, 4]");
  EXPECT_EQ(error(map, x, dy, x), "weight_gradient: gradient: shape [2, 4]; it must be [8, 5]");
  const KernelMap table = *backend_->map_ops().To(MapForm::kNeighbourTable, map, context_);
  EXPECT_EQ(error(table, x, dy, gradient),
            "weight_gradient: a kernel map of the form neighbour_table; it takes pairs");
  EXPECT_EQ(
      ops()
          .WeightGradient(map, x.view(), dy.view(), Precision::kF16, gradient.view(), context_)
          .message(),
      "weight_gradient: precision f16 for tensors of f32");
}

TEST_F(TensorOpsTest, EmptyTensorsAreFine) {
  const Tensor x = Make(0, 4, {}), y = Output(0, 4), w = Make(4, 4, std::vector<float>(16));
  EXPECT_TRUE(ops().ScaleShift(x.view(), nullptr, nullptr, true, y.view(), context_).ok());
  EXPECT_TRUE(ops().Add(x.view(), x.view(), true, y.view(), context_).ok());
  EXPECT_TRUE(ops().Linear(x.view(), w.view(), nullptr, Precision::kF32, y.view(), context_).ok());
  const KernelMap map = MakeMap(0, 0, {{}, {}});
  for (PoolMode mode :
       {PoolMode::kMax, PoolMode::kSum, PoolMode::kAverage, PoolMode::kAveragePresent}) {
    EXPECT_TRUE(ops().Pool(map, mode, x.view(), y.view(), nullptr, context_).ok());
    EXPECT_TRUE(ops().Unpool(map, mode, x.view(), nullptr, y.view(), context_).ok());
  }
}

TEST_F(TensorOpsTest, RefusesShapesByNameAndValue) {
  const Tensor a = Make(2, 2, {1, 2, 3, 4}), b = Make(2, 3, std::vector<float>(6));
  EXPECT_EQ(ops().Add(a.view(), b.view(), false, a.view(), context_).message(),
            "add: b: shape [2, 3]; it must be [2, 2]");
  EXPECT_EQ(ops().Concat(a.view(), b.view(), b.view(), context_).message(),
            "concat: y: shape [2, 3]; it must be [2, 5]");
  EXPECT_EQ(
      ops().Linear(b.view(), a.view(), nullptr, Precision::kF32, a.view(), context_).message(),
      "linear: weights: shape [2, 2]; it must be [3, 2]");
  EXPECT_EQ(ops().ScaleShift(a.view(), nullptr, nullptr, false, b.view(), context_).message(),
            "scale_shift: y: shape [2, 3]; it must be [2, 2]");
  const KernelMap map = MakeMap(3, 2, {{}});
  EXPECT_EQ(ops().Pool(map, PoolMode::kSum, a.view(), a.view(), nullptr, context_).message(),
            "pool: x: shape [2, 2]; it must be [3, 2]");
  EXPECT_EQ(
      ops().Unpool(map, PoolMode::kMax, a.view(), nullptr, Output(3, 2).view(), context_).message(),
      "unpool: mode max needs the switches of its pooling");
  TensorView half = a.view();
  half.dtype = DType::kF16;
  EXPECT_EQ(ops().Add(half, a.view(), false, a.view(), context_).message(),
            "add: a: dtype f16; dense operators take f32");
}

// Enough rows for many tasks; bitwise the same for one and for two threads.
TEST_F(TensorOpsTest, ResultsDoNotDependOnTheNumberOfThreads) {
  constexpr int64_t kRows = 5000, kChannels = 24;
  std::vector<float> values(kRows * kChannels), weights(kChannels * kChannels);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = std::cos(static_cast<float>(i));
  std::vector<std::vector<std::pair<int32_t, int32_t>>> pairs(3);
  for (int32_t q = 0; q < kRows; ++q) {
    for (int k = 0; k < 3; ++k) {
      if (q + k - 1 >= 0 && q + k - 1 < kRows) pairs[k].push_back({q + k - 1, q});
    }
  }
  const auto run = [&](int threads) {
    backend_ = *CpuBackend::Create({.threads = threads});
    context_ = {backend_.get(), &backend_->main_stream(), nullptr};
    const KernelMap map = MakeMap(kRows, kRows, pairs);
    const Tensor x = Make(kRows, kChannels, values), w = Make(kChannels, kChannels, weights);
    const Tensor a = Output(kRows, kChannels), b = Output(kRows, kChannels);
    EXPECT_TRUE(
        ops().Linear(x.view(), w.view(), weights.data(), Precision::kF32, a.view(), context_).ok());
    EXPECT_TRUE(
        ops().Pool(map, PoolMode::kAveragePresent, a.view(), b.view(), nullptr, context_).ok());
    EXPECT_TRUE(
        ops().Unpool(map, PoolMode::kAveragePresent, b.view(), nullptr, a.view(), context_).ok());
    std::vector<Coordinate> rows(kRows);
    for (int32_t i = 0; i < kRows; ++i) rows[i] = {i % 3, i, 0, 0};
    const CoordinateSetPtr set = *CoordinateSet::Create(rows, {1, 1, 1}, context_);
    const Tensor pooled = Output(3, kChannels);
    EXPECT_TRUE(
        ops().GlobalPool(*set, PoolMode::kAveragePresent, a.view(), pooled.view(), context_).ok());
    std::vector<float> result = Host(a);
    const std::vector<float> means = Host(pooled);
    result.insert(result.end(), means.begin(), means.end());
    return result;
  };
  EXPECT_EQ(run(1), run(2));
}

}  // namespace
}  // namespace voxconv
