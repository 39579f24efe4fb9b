// SPDX-License-Identifier: Apache-2.0
// The gradients of dense operators on CUDA against the CPU's.
#include "cuda_training_test_util.h"
#include "voxconv/core/tensor_ops.h"

namespace voxconv {
namespace {

constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kTf32, Precision::kF16,
                                     Precision::kBF16};
constexpr PoolMode kModes[] = {PoolMode::kMax, PoolMode::kSum, PoolMode::kAveragePresent};

class CudaTrainingOpsTest : public CudaTrainingTest {
 protected:
  struct Rows {
    Array<Coordinate> cpu, cuda;
  };
  // Four samples, of which the second has no rows.
  static constexpr int64_t kSamples = 4;
  Rows MakeRows(int64_t rows) {
    std::vector<Coordinate> coordinates(rows);
    for (int64_t i = 0; i < rows; ++i) {
      coordinates[i].b = i % 5 == 0 ? 3 : i < rows / 2 ? 0 : 2;
    }
    return {*CopyToBackend<Coordinate>(coordinates, cpu_),
            *CopyToBackend<Coordinate>(coordinates, cuda_)};
  }
};

TEST_F(CudaTrainingOpsTest, ReluGrad) {
  ForAll([&](int64_t rows, int64_t channels, DType dtype) {
    const Both y = MakeWhole(rows, channels, dtype), dy = Make(rows, channels, dtype);
    const Both dx = Make(rows, channels, dtype);
    ExpectOk(cpu_ops().ReluGrad(y.cpu.view(), dy.cpu.view(), dx.cpu.view(), cpu_));
    ExpectOk(ops().ReluGrad(y.cuda.view(), dy.cuda.view(), dx.cuda.view(), cuda_));
    ExpectExact(dx);
    ExpectOk(ops().ReluGrad(y.cuda.view(), dy.cuda.view(), dy.cuda.view(), cuda_));
    EXPECT_TRUE(*dy.cuda.ToHost(cuda_) == *dx.cuda.ToHost(cuda_));
  });
}

TEST_F(CudaTrainingOpsTest, Split) {
  ForAll([&](int64_t rows, int64_t channels, DType dtype) {
    for (const int64_t more : {int64_t{0}, int64_t{1}, int64_t{2}, channels}) {
      const Both y = Make(rows, channels + more, dtype);
      const Both a = Make(rows, channels, dtype), b = Make(rows, more, dtype);
      ExpectOk(cpu_ops().Split(y.cpu.view(), a.cpu.view(), b.cpu.view(), cpu_));
      ExpectOk(ops().Split(y.cuda.view(), a.cuda.view(), b.cuda.view(), cuda_));
      ExpectExact(a);
      ExpectExact(b);
    }
  });
}

// Factors are small whole numbers, so that sums are exact in every precision and order.
TEST_F(CudaTrainingOpsTest, LinearWeightGradient) {
  constexpr int64_t kCases[][3] = {{0, 3, 5},      {5, 0, 3},         {5, 3, 0},       {1, 1, 1},
                                   {37, 7, 5},     {500, 1, 20},      {3000, 33, 13},  {77, 64, 64},
                                   {10, 300, 400}, {100'000, 96, 96}, {100'001, 3, 32}};
  for (const auto& [rows, c_in, c_out] : kCases) {
    for (const Precision precision : kPrecisions) {
      const DType dtype = StorageOf(precision);
      const Both x = MakeWhole(rows, c_in, dtype), dy = MakeWhole(rows, c_out, dtype);
      const Tensor sums = *Tensor::Create(c_in, c_out, DType::kF32, cpu_);
      ExpectOk(cpu_ops().LinearWeightGradient(x.cpu.view(), dy.cpu.view(), Precision::kF32,
                                              sums.view(), cpu_));
      for (const DType stored : {dtype, DType::kF32}) {
        SCOPED_TRACE(testing::Message() << rows << " rows, " << c_in << " to " << c_out << ", "
                                        << ToString(precision) << " to " << ToString(stored));
        const Tensor gradient = Make(c_in, c_out, stored).cuda;
        const absl::Status status = ops().LinearWeightGradient(x.cuda.view(), dy.cuda.view(),
                                                               precision, gradient.view(), cuda_);
        ASSERT_TRUE(status.ok()) << status;
        const Tensor rounded = *Tensor::FromHost(*sums.ToHost(cpu_), c_in, c_out, cuda_, stored);
        EXPECT_TRUE(*gradient.ToHost(cuda_) == *rounded.ToHost(cuda_));
      }
    }
  }
}

TEST_F(CudaTrainingOpsTest, LinearWeightGradientRepeatsBitwise) {
  for (const Precision precision : kPrecisions) {
    const DType dtype = StorageOf(precision);
    for (const DType stored : {dtype, DType::kF32}) {
      const Both x = Make(50'000, 48, dtype), dy = Make(50'000, 20, dtype);
      const Tensor gradient = Make(48, 20, stored).cuda;
      ExpectRepeats([&] {
        ExpectOk(ops().LinearWeightGradient(x.cuda.view(), dy.cuda.view(), precision,
                                            gradient.view(), cuda_));
        return *gradient.ToHost(cuda_);
      });
    }
  }
}

TEST_F(CudaTrainingOpsTest, Select) {
  ForAll([&](int64_t rows, int64_t channels, DType dtype) {
    const int64_t inputs = rows / 3 + 1;
    const Both x = Make(inputs, channels, dtype), y = Make(rows, channels, dtype);
    std::vector<int32_t> switches(rows * channels);
    for (int32_t& from : switches) from = static_cast<int32_t>(random_() % (inputs + 1)) - 1;
    const Array<int32_t> cuda_switches = *CopyToBackend<int32_t>(switches, cuda_);
    ExpectOk(cpu_ops().Select(x.cpu.view(), switches.data(), y.cpu.view(), cpu_));
    ExpectOk(ops().Select(x.cuda.view(), cuda_switches.data(), y.cuda.view(), cuda_));
    ExpectExact(y);
  });
}

TEST_F(CudaTrainingOpsTest, GlobalPoolGrad) {
  ForAll([&](int64_t rows, int64_t channels, DType dtype) {
    const Rows coordinates = MakeRows(rows);
    const Both x = MakeWhole(rows, channels, dtype);  // with ties
    const Both y = Make(kSamples, channels, dtype), dy = Make(kSamples, channels, dtype);
    const Both dx = Make(rows, channels, dtype);
    for (const PoolMode mode : kModes) {
      SCOPED_TRACE(ToString(mode));
      // Of a sum or mean, the gradient does not depend on x and y.
      const PoolMode forward = PoolMode::kMax;
      const auto set = [](Array<Coordinate> array) {
        return CoordinateSet::Adopt(std::move(array), {1, 1, 1}, Box{}, kSamples, false);
      };
      Rows again = MakeRows(rows);
      ExpectOk(cpu_backend_->tensor_ops().GlobalPool(*set(std::move(again.cpu)), forward,
                                                     x.cpu.view(), y.cpu.view(), cpu_));
      ExpectOk(unit_->backend->tensor_ops().GlobalPool(*set(std::move(again.cuda)), forward,
                                                       x.cuda.view(), y.cuda.view(), cuda_));
      ExpectOk(cpu_ops().GlobalPoolGrad(coordinates.cpu, mode, x.cpu.view(), y.cpu.view(),
                                        dy.cpu.view(), dx.cpu.view(), cpu_));
      const auto run = [&] {
        ExpectOk(ops().GlobalPoolGrad(coordinates.cuda, mode, x.cuda.view(), y.cuda.view(),
                                      dy.cuda.view(), dx.cuda.view(), cuda_));
        return *dx.cuda.ToHost(cuda_);
      };
      ExpectRepeats(run);
      if (mode == PoolMode::kAveragePresent) {
        ExpectNear(dx, dtype == DType::kBF16 ? 4e-3 : dtype == DType::kF16 ? 1e-3 : 1e-6, 1e-4);
      } else {
        ExpectExact(dx);
      }
    }
  });
}

// GlobalPool refuses such rows. Here they get 0, and nothing is written outside.
TEST_F(CudaTrainingOpsTest, GlobalPoolGradOfRowsOutside) {
  const std::vector<Coordinate> coordinates{{1, 0, 0, 0}, {2, 0, 0, 0}, {-1, 0, 0, 0}};
  const Array<Coordinate> rows = *CopyToBackend<Coordinate>(coordinates, cuda_);
  const Both ones = Share(std::vector<float>(12, 1.0f), 3, 4);
  const Both pooled = Share(std::vector<float>(8, 1.0f), 2, 4);
  const Both none = Share({}, 0, 4);
  const std::vector<float> expected{1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0};
  for (const PoolMode mode : kModes) {
    const Tensor dx = Make(3, 4, DType::kF32).cuda;
    ExpectOk(ops().GlobalPoolGrad(rows, mode, ones.cuda.view(), pooled.cuda.view(),
                                  pooled.cuda.view(), dx.view(), cuda_));
    EXPECT_EQ(*dx.ToHost(cuda_), expected);
    ExpectOk(ops().GlobalPoolGrad(rows, mode, ones.cuda.view(), none.cuda.view(), none.cuda.view(),
                                  dx.view(), cuda_));
    EXPECT_EQ(*dx.ToHost(cuda_), std::vector<float>(12, 0.0f));
  }
}

TEST_F(CudaTrainingOpsTest, Dropout) {
  ForAll([&](int64_t rows, int64_t channels, DType dtype) {
    const Both x = Make(rows, channels, dtype, 1, 2), y = Make(rows, channels, dtype);
    for (const double rate : {0.0, 0.3, 0.99}) {
      for (const uint64_t seed : {uint64_t{0}, uint64_t{0xfedcba9876543210}}) {
        ExpectOk(cpu_ops().Dropout(x.cpu.view(), rate, seed, y.cpu.view(), cpu_));
        ExpectOk(ops().Dropout(x.cuda.view(), rate, seed, y.cuda.view(), cuda_));
        ExpectExact(y);
      }
    }
    ExpectOk(ops().Dropout(x.cuda.view(), 0.99, 0xfedcba9876543210, x.cuda.view(), cuda_));
    EXPECT_TRUE(*x.cuda.ToHost(cuda_) == *y.cuda.ToHost(cuda_));
  });
}

TEST_F(CudaTrainingOpsTest, LaunchesAndWaits) {
  constexpr int64_t kRows = 1000, kChannels = 16;
  const Tensor x = Make(kRows, kChannels, DType::kF16).cuda;
  const Tensor dy = Make(kRows, kChannels, DType::kF16).cuda;
  const Tensor dx = Make(kRows, kChannels, DType::kF16).cuda;
  const Tensor wide = Make(kRows, 2 * kChannels, DType::kF16).cuda;
  const Tensor weights = Make(kChannels, kChannels, DType::kF32).cuda;
  const Tensor pooled = Make(kSamples, kChannels, DType::kF16).cuda;
  const Rows rows = MakeRows(kRows);
  const Array<int32_t> switches =
      *CopyToBackend<int32_t>(std::vector<int32_t>(kRows * kChannels, 5), cuda_);
  ExpectQueues(1, [&] { return ops().ReluGrad(x.view(), dy.view(), dx.view(), cuda_); });
  ExpectQueues(1, [&] { return ops().Split(wide.view(), dy.view(), dx.view(), cuda_); });
  ExpectQueues(1, [&] { return ops().Select(x.view(), switches.data(), dx.view(), cuda_); });
  ExpectQueues(1, [&] { return ops().Dropout(x.view(), 0.5, 1, dx.view(), cuda_); });
  ExpectQueues(1, [&] {
    return ops().LinearWeightGradient(x.view(), dy.view(), Precision::kF16, weights.view(), cuda_);
  });
  for (const PoolMode mode : kModes) {
    ExpectQueues(mode == PoolMode::kSum ? 1 : 2, [&] {
      return ops().GlobalPoolGrad(rows.cuda, mode, x.view(), pooled.view(), pooled.view(),
                                  dx.view(), cuda_);
    });
  }
}

TEST_F(CudaTrainingOpsTest, RefusesByNameAndValue) {
  const Both a = Make(2, 2, DType::kF32), b = Make(2, 3, DType::kF32), h = Make(2, 2, DType::kF16);
  EXPECT_EQ(ops().ReluGrad(a.cuda.view(), b.cuda.view(), a.cuda.view(), cuda_).message(),
            "relu_grad: dy: shape [2, 3]; it must be [2, 2]");
  EXPECT_EQ(ops().ReluGrad(a.cuda.view(), h.cuda.view(), a.cuda.view(), cuda_).message(),
            "relu_grad: dy: dtype f16; it must be f32");
  EXPECT_EQ(ops().ReluGrad(a.cpu.view(), a.cuda.view(), a.cuda.view(), cuda_).message(),
            "relu_grad: y: it lies in host memory; the backend takes device 0");
  EXPECT_EQ(ops().ColumnSums(a.cuda.view(), nullptr, cuda_).message(), "column_sums: sums: null");
  EXPECT_EQ(ops().Dropout(a.cuda.view(), 1, 0, a.cuda.view(), cuda_).message(),
            "dropout: rate: 1; allowed is [0, 1)");
}

}  // namespace
}  // namespace voxconv
