// SPDX-License-Identifier: Apache-2.0
// Batch norm in training and sums over rows, on CUDA against the CPU.
#include <limits>

#include "cuda_training_test_util.h"

namespace voxconv {
namespace {

// Of the sum of `rows` values of about 1, whose rounding errors differ in sign.
double SumBound(int64_t rows) { return 4e-6 * std::sqrt(static_cast<double>(rows) + 1); }

class CudaBatchNormTest : public CudaTrainingTest {
 protected:
  void ExpectMoments(const Both& x) {
    const Both mean = MakeVector(x.cpu.channels()), deviation = MakeVector(x.cpu.channels());
    ExpectOk(cpu_ops().ChannelMoments(x.cpu.view(), OnCpu(mean), OnCpu(deviation), cpu_));
    ExpectOk(ops().ChannelMoments(x.cuda.view(), OnCuda(mean), OnCuda(deviation), cuda_));
    ExpectNear(mean, 2e-7, 1);
    ExpectNear(deviation, 2e-6, 0);
  }

  // Arguments of the gradient, on both sides.
  struct Gradient {
    Both x, dy, y, mean, inverse_std, gamma, sum_dy, sum_dy_x;
  };
  Gradient MakeGradient(int64_t rows, int64_t channels, DType dtype) {
    const float most = static_cast<float>(rows);
    return {Make(rows, channels, dtype),       Make(rows, channels, dtype),
            MakeWhole(rows, channels, dtype),  MakeVector(channels),
            MakeVector(channels, 0.5, 1.5),    MakeVector(channels),
            MakeVector(channels, -most, most), MakeVector(channels, -most, most)};
  }
  static BatchNormGradArgs Args(const Gradient& g, Tensor Both::*side, bool relu, int64_t rows) {
    const auto array = [&](const Both& vector) { return (vector.*side).view().f32(); };
    ConstTensorView y;
    if (relu) y = (g.y.*side).view();
    return {.x = (g.x.*side).view(),
            .dy = (g.dy.*side).view(),
            .y = y,
            .mean = array(g.mean),
            .inverse_std = array(g.inverse_std),
            .gamma = array(g.gamma),
            .sum_dy = array(g.sum_dy),
            .sum_dy_x = array(g.sum_dy_x),
            .rows = rows};
  }
};

TEST_F(CudaBatchNormTest, Moments) {
  ForAll([&](int64_t rows, int64_t channels, DType dtype) {
    ExpectMoments(Make(rows, channels, dtype));
  });
}

TEST_F(CudaBatchNormTest, MomentsFarFromZero) {
  for (const auto& [rows, channels] : kShapes) {
    SCOPED_TRACE(testing::Message() << "[" << rows << ", " << channels << "]");
    ExpectMoments(Make(rows, channels, DType::kF32, 999, 1001));
    ExpectMoments(Make(rows, channels, DType::kF16, 999, 1001));
    ExpectMoments(Make(rows, channels, DType::kBF16, 90, 110));
  }
}

// The first value is what others are subtracted from. It must not matter.
TEST_F(CudaBatchNormTest, MomentsWithAnOutlierFirst) {
  constexpr int64_t kRows = 5000, kChannels = 12;
  std::vector<float> values(kRows * kChannels);
  for (float& value : values) value = static_cast<float>(random_() % 1000) / 1000.0f;
  for (int64_t c = 0; c < kChannels; ++c) values[c] = 30;
  ExpectMoments(Share(values, kRows, kChannels));
}

TEST_F(CudaBatchNormTest, MomentsOfAConstantAreExact) {
  const Both x = Share(std::vector<float>(3000 * 20, 0.1f), 3000, 20);
  const Both mean = MakeVector(20), deviation = MakeVector(20);
  ExpectOk(ops().ChannelMoments(x.cuda.view(), OnCuda(mean), OnCuda(deviation), cuda_));
  EXPECT_EQ(*mean.cuda.ToHost(cuda_), std::vector<float>(20, 0.1f));
  EXPECT_EQ(*deviation.cuda.ToHost(cuda_), std::vector<float>(20, 0.0f));
}

TEST_F(CudaBatchNormTest, MomentsOfNaNAreNaNInItsChannel) {
  std::vector<float> values(1000 * 8, 1.0f);
  values[777 * 8 + 3] = std::numeric_limits<float>::quiet_NaN();
  const Both x = Share(values, 1000, 8), mean = MakeVector(8), deviation = MakeVector(8);
  ExpectOk(ops().ChannelMoments(x.cuda.view(), OnCuda(mean), OnCuda(deviation), cuda_));
  const std::vector<float> means = *mean.cuda.ToHost(cuda_);
  const std::vector<float> deviations = *deviation.cuda.ToHost(cuda_);
  for (int c = 0; c < 8; ++c) {
    EXPECT_EQ(std::isnan(means[c]), c == 3);
    EXPECT_EQ(std::isnan(deviations[c]), c == 3);
  }
}

// Data that begins past an aligned address is read one element at a time.
TEST_F(CudaBatchNormTest, MomentsOfUnalignedData) {
  for (const DType dtype : kDTypes) {
    constexpr int64_t kRows = 2000, kChannels = 16;
    const Both all = Make(1, kRows * kChannels + 1, dtype);
    const auto past_first = [&](const Tensor& tensor) {
      TensorView view = tensor.view();
      view.data = static_cast<char*>(view.data) + SizeOf(view.dtype);
      view.rows = kRows;
      view.channels = view.row_stride = kChannels;
      return view;
    };
    const Both mean = MakeVector(kChannels), deviation = MakeVector(kChannels);
    ExpectOk(cpu_ops().ChannelMoments(past_first(all.cpu), OnCpu(mean), OnCpu(deviation), cpu_));
    ExpectOk(ops().ChannelMoments(past_first(all.cuda), OnCuda(mean), OnCuda(deviation), cuda_));
    ExpectNear(mean, 2e-7, 1);
    ExpectNear(deviation, 2e-6, 0);
  }
}

TEST_F(CudaBatchNormTest, Scale) {
  for (const int64_t channels : {0, 1, 33, 4096}) {
    for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{3'000'000'000}}) {
      for (const bool runs : {false, true}) {
        const Both mean = MakeVector(channels);
        const Both deviation = MakeVector(channels, 0, static_cast<float>(rows + 1));
        const Both gamma = MakeVector(channels), beta = MakeVector(channels);
        const Both inverse_std = MakeVector(channels), scale = MakeVector(channels);
        const Both shift = MakeVector(channels), running_mean = MakeVector(channels);
        const Both running_variance = MakeVector(channels, 0, 1);
        const auto args = [&](Tensor Both::*side) {
          const auto array = [&](const Both& vector) { return (vector.*side).view().f32(); };
          return BatchNormBatch{.channels = channels,
                                .rows = rows,
                                .mean = array(mean),
                                .deviation = array(deviation),
                                .gamma = array(gamma),
                                .beta = array(beta),
                                .epsilon = 1e-3,
                                .momentum = 0.25,
                                .inverse_std = array(inverse_std),
                                .scale = array(scale),
                                .shift = array(shift),
                                .running_mean = runs ? array(running_mean) : nullptr,
                                .running_variance = runs ? array(running_variance) : nullptr};
        };
        ExpectOk(cpu_ops().BatchNormScale(args(&Both::cpu), cpu_));
        ExpectOk(ops().BatchNormScale(args(&Both::cuda), cuda_));
        for (const Both* y : {&inverse_std, &scale, &shift, &running_mean, &running_variance}) {
          ExpectNear(*y, 1e-6, 1e-3);
        }
      }
    }
  }
}

TEST_F(CudaBatchNormTest, GradSums) {
  ForAll([&](int64_t rows, int64_t channels, DType dtype) {
    const Gradient g = MakeGradient(rows, channels, dtype);
    for (const bool relu : {false, true}) {
      ExpectOk(cpu_ops().BatchNormGradSums(Args(g, &Both::cpu, relu, rows), cpu_));
      ExpectOk(ops().BatchNormGradSums(Args(g, &Both::cuda, relu, rows), cuda_));
      ExpectNear(g.sum_dy, SumBound(rows), 1);
      ExpectNear(g.sum_dy_x, SumBound(rows), 1);
    }
  });
}

TEST_F(CudaBatchNormTest, InputGrad) {
  ForAll([&](int64_t rows, int64_t channels, DType dtype) {
    const Gradient g = MakeGradient(rows, channels, dtype);
    const Both dx = Make(rows, channels, dtype);
    for (const bool relu : {false, true}) {
      for (const int64_t of : {rows, 2 * rows + 1}) {
        ExpectOk(cpu_ops().BatchNormInputGrad(Args(g, &Both::cpu, relu, of), dx.cpu.view(), cpu_));
        ExpectOk(ops().BatchNormInputGrad(Args(g, &Both::cuda, relu, of), dx.cuda.view(), cuda_));
        ExpectRounded(dx, 8);
      }
    }
    ExpectOk(ops().BatchNormInputGrad(Args(g, &Both::cuda, true, rows), g.dy.cuda.view(), cuda_));
    ExpectOk(cpu_ops().BatchNormInputGrad(Args(g, &Both::cpu, true, rows), g.dy.cpu.view(), cpu_));
    ExpectRounded(g.dy, 8);
  });
}

// What processes that share a batch exchange.
TEST_F(CudaBatchNormTest, SharedMoments) {
  for (const int64_t channels : {1, 33, 4096}) {
    const Both mean = MakeVector(channels, -50, 50), deviation = MakeVector(channels, 0, 900);
    std::vector<double> expected(1 + 2 * channels);
    ExpectOk(cpu_ops().SumsOfMoments(OnCpu(mean), OnCpu(deviation), 700, channels, expected.data(),
                                     cpu_));
    Array<double> sums = *AllocateArray<double>(1 + 2 * channels, cuda_);
    ExpectOk(
        ops().SumsOfMoments(OnCuda(mean), OnCuda(deviation), 700, channels, sums.data(), cuda_));
    const std::vector<double> result = *CopyToHost(sums, cuda_);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(result[i], expected[i], 1e-12 * std::abs(expected[i])) << "sum " << i;
    }
    const Both mean_again = MakeVector(channels), deviation_again = MakeVector(channels);
    ExpectOk(cpu_ops().MomentsOfSums(expected.data(), channels, OnCpu(mean_again),
                                     OnCpu(deviation_again), cpu_));
    ExpectOk(ops().MomentsOfSums(sums.data(), channels, OnCuda(mean_again), OnCuda(deviation_again),
                                 cuda_));
    ExpectNear(mean_again, 2e-7, 1e-3);
    ExpectNear(deviation_again, 1e-6, 1);
  }
}

// The rows on the device count, not those of the arguments.
TEST_F(CudaBatchNormTest, SharedRows) {
  constexpr int64_t kRows = 500, kChannels = 24;
  const double shared = 1300;
  const Array<double> shared_cuda = *CopyToBackend<double>(absl::MakeConstSpan(&shared, 1), cuda_);
  const Gradient g = MakeGradient(kRows, kChannels, DType::kF32);
  const Both dx = Make(kRows, kChannels, DType::kF32);
  BatchNormGradArgs on_cpu = Args(g, &Both::cpu, true, 0), on_cuda = Args(g, &Both::cuda, true, 0);
  on_cpu.shared_rows = &shared;
  on_cuda.shared_rows = shared_cuda.data();
  ExpectOk(cpu_ops().BatchNormInputGrad(on_cpu, dx.cpu.view(), cpu_));
  ExpectOk(ops().BatchNormInputGrad(on_cuda, dx.cuda.view(), cuda_));
  ExpectRounded(dx, 8);
  const std::vector<float> given = *dx.cuda.ToHost(cuda_);
  ExpectOk(ops().BatchNormInputGrad(Args(g, &Both::cuda, true, 1300), dx.cuda.view(), cuda_));
  EXPECT_EQ(*dx.cuda.ToHost(cuda_), given);

  const Both mean = MakeVector(kChannels), deviation = MakeVector(kChannels, 1, 900);
  const Both results = Make(6, kChannels, DType::kF32);
  const auto scale = [&](Tensor Both::*side, TrainingOps& ops, int64_t rows, const double* other,
                         const ExecutionContext& context) {
    const auto array = [&](int i) { return (results.*side).view().f32() + i * kChannels; };
    ExpectOk(ops.BatchNormScale({.channels = kChannels,
                                 .rows = rows,
                                 .shared_rows = other,
                                 .mean = (mean.*side).view().f32(),
                                 .deviation = (deviation.*side).view().f32(),
                                 .gamma = (g.gamma.*side).view().f32(),
                                 .beta = (g.mean.*side).view().f32(),
                                 .inverse_std = array(0),
                                 .scale = array(1),
                                 .shift = array(2),
                                 .running_mean = array(3),
                                 .running_variance = array(4)},
                                context));
  };
  scale(&Both::cpu, cpu_ops(), 1300, nullptr, cpu_);
  scale(&Both::cuda, ops(), 0, shared_cuda.data(), cuda_);
  ExpectNear(results, 1e-6, 1e-3);
}

TEST_F(CudaBatchNormTest, ColumnSums) {
  ForAll([&](int64_t rows, int64_t channels, DType dtype) {
    const Both x = Make(rows, channels, dtype), sums = MakeVector(channels);
    ExpectOk(cpu_ops().ColumnSums(x.cpu.view(), OnCpu(sums), cpu_));
    ExpectOk(ops().ColumnSums(x.cuda.view(), OnCuda(sums), cuda_));
    ExpectNear(sums, SumBound(rows), 1);
  });
}

TEST_F(CudaBatchNormTest, RepeatsBitwise) {
  ForAll([&](int64_t rows, int64_t channels, DType dtype) {
    const Gradient g = MakeGradient(rows, channels, dtype);
    const Both a = MakeVector(channels), b = MakeVector(channels);
    const auto both = [&](const Both& first, const Both& second) {
      std::vector<float> values = *first.cuda.ToHost(cuda_);
      const std::vector<float> more = *second.cuda.ToHost(cuda_);
      values.insert(values.end(), more.begin(), more.end());
      return values;
    };
    ExpectRepeats([&] {
      ExpectOk(ops().ChannelMoments(g.x.cuda.view(), OnCuda(a), OnCuda(b), cuda_));
      return both(a, b);
    });
    ExpectRepeats([&] {
      ExpectOk(ops().BatchNormGradSums(Args(g, &Both::cuda, true, rows), cuda_));
      return both(g.sum_dy, g.sum_dy_x);
    });
    ExpectRepeats([&] {
      ExpectOk(ops().ColumnSums(g.x.cuda.view(), OnCuda(a), cuda_));
      return *a.cuda.ToHost(cuda_);
    });
  });
}

TEST_F(CudaBatchNormTest, LaunchesAndWaits) {
  const Gradient g = MakeGradient(1000, 32, DType::kF16);
  const BatchNormGradArgs args = Args(g, &Both::cuda, true, 1000);
  ExpectQueues(2, [&] {
    return ops().ChannelMoments(g.x.cuda.view(), OnCuda(g.mean), OnCuda(g.inverse_std), cuda_);
  });
  ExpectQueues(2, [&] { return ops().BatchNormGradSums(args, cuda_); });
  ExpectQueues(2, [&] { return ops().ColumnSums(g.x.cuda.view(), OnCuda(g.sum_dy), cuda_); });
  ExpectQueues(1, [&] { return ops().BatchNormInputGrad(args, g.dy.cuda.view(), cuda_); });
}

}  // namespace
}  // namespace voxconv
