// SPDX-License-Identifier: Apache-2.0
// The dense operators on CUDA against the CPU's, on inputs rounded to the dtype.
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "unit_cuda.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/core/tensor_ops.h"

namespace voxconv {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kTf32, Precision::kF16,
                                     Precision::kBF16};
constexpr PoolMode kModes[] = {PoolMode::kMax, PoolMode::kSum, PoolMode::kAverage,
                               PoolMode::kAveragePresent};

// Odd sizes, sizes of whole 16-byte packs, rows of more packs than a block has threads.
constexpr int64_t kShapes[][2] = {{0, 4},   {3, 0},  {1, 1},    {37, 5},   {500, 24},
                                  {77, 64}, {7, 30}, {3, 2056}, {4099, 8}, {300, 33}};

class CudaTensorOpsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unit_ = UnitCuda::Create();
    if (unit_ == nullptr) GTEST_SKIP() << "no CUDA device on this machine";
    cpu_backend_ = *CpuBackend::Create({.threads = 1});
    cpu_ = {cpu_backend_.get(), &cpu_backend_->main_stream(), nullptr};
    cuda_ = unit_->context;
  }

  // The same values, rounded to `dtype`, on both backends.
  struct Both {
    Tensor cpu, cuda;
  };
  Both Make(int64_t rows, int64_t channels, DType dtype) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(rows * channels);
    for (float& value : values) value = uniform(random_);
    Both both;
    both.cuda = *Tensor::FromHost(values, rows, channels, cuda_, dtype);
    both.cpu = *Tensor::FromHost(*both.cuda.ToHost(cuda_), rows, channels, cpu_);
    return both;
  }
  // Whole numbers from -2 to 2.
  Both MakeWhole(int64_t rows, int64_t channels, DType dtype) {
    std::vector<float> values(rows * channels);
    for (float& value : values) value = static_cast<float>(random_() % 5) - 2;
    return {*Tensor::FromHost(values, rows, channels, cpu_),
            *Tensor::FromHost(values, rows, channels, cuda_, dtype)};
  }
  // A vector in f32 on both, for scales and biases.
  Both MakeVector(int64_t channels) { return Make(1, channels, DType::kF32); }

  void ExpectSame(const Both& y, double magnitude) {
    ExpectSame(y, magnitude, PrecisionOf(y.cuda.view().dtype));
  }
  // `y` was computed in `precision`, from sums of about `magnitude`.
  void ExpectSame(const Both& y, double magnitude, Precision precision) {
    const double bound = precision == Precision::kBF16  ? 4e-3
                         : precision == Precision::kF32 ? 1e-6
                                                        : 1e-3;
    const std::vector<float> cuda = *y.cuda.ToHost(cuda_), cpu = *y.cpu.ToHost(cpu_);
    ASSERT_EQ(cuda.size(), cpu.size());
    for (size_t i = 0; i < cpu.size(); ++i) {
      ASSERT_NEAR(cuda[i], cpu[i], bound * std::max<double>(magnitude, std::abs(cpu[i])))
          << "element " << i << " of [" << y.cpu.rows() << ", " << y.cpu.channels() << "] "
          << ToString(precision);
    }
  }

  // Offset k pairs output q with input 2 q + k - 1: windows that overlap, ends without inputs.
  KernelMap MakeMap(int64_t inputs, int64_t outputs, int offsets, const ExecutionContext& context) {
    std::vector<int32_t> in, out;
    std::vector<int64_t> offset_ptr{0};
    for (int k = 0; k < offsets; ++k) {
      for (int64_t q = 0; q < outputs; ++q) {
        const int64_t p = 2 * q + k - 1;
        if (p < 0 || p >= inputs || (p * 7 + k) % 3 == 0) continue;
        in.push_back(static_cast<int32_t>(p));
        out.push_back(static_cast<int32_t>(q));
      }
      offset_ptr.push_back(in.size());
    }
    PairList list{*CopyToBackend<int32_t>(in, context), *CopyToBackend<int32_t>(out, context)};
    return {inputs, outputs, offset_ptr, std::move(list)};
  }

  TensorOps& cpu_ops() { return cpu_backend_->tensor_ops(); }
  TensorOps& ops() { return unit_->backend->tensor_ops(); }

  // Calls test(rows, channels, dtype) for all.
  void ForAll(const std::function<void(int64_t, int64_t, DType)>& test) {
    for (DType dtype : kDTypes) {
      for (const auto& [rows, channels] : kShapes) test(rows, channels, dtype);
    }
  }

  std::mt19937 random_{5};
  std::unique_ptr<UnitCuda> unit_;
  std::unique_ptr<CpuBackend> cpu_backend_;
  ExecutionContext cpu_, cuda_;
};

TEST_F(CudaTensorOpsTest, ScaleShift) {
  ForAll([&](int64_t rows, int64_t channels, DType dtype) {
    const Both x = Make(rows, channels, dtype), y = Make(rows, channels, dtype);
    const Both scale = MakeVector(channels), shift = MakeVector(channels);
    for (int which = 0; which < 8; ++which) {
      const bool a = which & 1, b = which & 2, relu = which & 4;
      ASSERT_TRUE(cpu_ops()
                      .ScaleShift(x.cpu.view(), a ? scale.cpu.view().f32() : nullptr,
                                  b ? shift.cpu.view().f32() : nullptr, relu, y.cpu.view(), cpu_)
                      .ok());
      ASSERT_TRUE(ops()
                      .ScaleShift(x.cuda.view(), a ? scale.cuda.view().f32() : nullptr,
                                  b ? shift.cuda.view().f32() : nullptr, relu, y.cuda.view(), cuda_)
                      .ok());
      ExpectSame(y, 1);
    }
  });
}

TEST_F(CudaTensorOpsTest, AddInPlace) {
  ForAll([&](int64_t rows, int64_t channels, DType dtype) {
    const Both a = Make(rows, channels, dtype), b = Make(rows, channels, dtype);
    for (bool relu : {false, true}) {
      ASSERT_TRUE(cpu_ops().Add(a.cpu.view(), b.cpu.view(), relu, b.cpu.view(), cpu_).ok());
      ASSERT_TRUE(ops().Add(a.cuda.view(), b.cuda.view(), relu, b.cuda.view(), cuda_).ok());
      ExpectSame(b, 4);  // the second time on what has been rounded once
    }
  });
}

TEST_F(CudaTensorOpsTest, NaNSurvivesActivation) {
  const std::vector<float> values{std::nanf(""), -1};
  const Tensor x = *Tensor::FromHost(values, 1, 2, cuda_);
  ASSERT_TRUE(ops().ScaleShift(x.view(), nullptr, nullptr, true, x.view(), cuda_).ok());
  const std::vector<float> host = *x.ToHost(cuda_);
  EXPECT_TRUE(std::isnan(host[0]));
  EXPECT_EQ(host[1], 0);
}

TEST_F(CudaTensorOpsTest, Concat) {
  ForAll([&](int64_t rows, int64_t channels, DType dtype) {
    for (int64_t more : {int64_t{0}, int64_t{1}, int64_t{2}, channels}) {
      const Both a = Make(rows, channels, dtype), b = Make(rows, more, dtype);
      const Both y = Make(rows, channels + more, dtype);
      ASSERT_TRUE(cpu_ops().Concat(a.cpu.view(), b.cpu.view(), y.cpu.view(), cpu_).ok());
      ASSERT_TRUE(ops().Concat(a.cuda.view(), b.cuda.view(), y.cuda.view(), cuda_).ok());
      EXPECT_EQ(*y.cuda.ToHost(cuda_), *y.cpu.ToHost(cpu_));
    }
  });
}

TEST_F(CudaTensorOpsTest, Linear) {
  for (const Precision precision : kPrecisions) {
    const DType dtype = StorageOf(precision);
    for (const auto& [rows, channels] : kShapes) {
      if (channels > 100) continue;
      for (int64_t outputs : {1, 7, 20, 64}) {
        const Both x = Make(rows, channels, dtype), w = Make(channels, outputs, dtype);
        const Both y = Make(rows, outputs, dtype), bias = MakeVector(outputs);
        for (bool with_bias : {false, true}) {
          ASSERT_TRUE(cpu_ops()
                          .Linear(x.cpu.view(), w.cpu.view(),
                                  with_bias ? bias.cpu.view().f32() : nullptr, Precision::kF32,
                                  y.cpu.view(), cpu_)
                          .ok());
          const absl::Status status = ops().Linear(x.cuda.view(), w.cuda.view(),
                                                   with_bias ? bias.cuda.view().f32() : nullptr,
                                                   precision, y.cuda.view(), cuda_);
          ASSERT_TRUE(status.ok()) << status;
          ExpectSame(y, 1 + 0.3 * static_cast<double>(channels), precision);
        }
      }
    }
  }
}

TEST_F(CudaTensorOpsTest, ConvertRoundsAsTheHostDoes) {
  ForAll([&](int64_t rows, int64_t channels, DType from) {
    const Tensor x = Make(rows, channels, from).cuda;
    for (const DType to : kDTypes) {
      const Tensor y = *Tensor::Create(rows, channels, to, cuda_);
      ASSERT_TRUE(ops().Convert(x.view(), y.view(), cuda_).ok());
      const Tensor expected = *Tensor::FromHost(*x.ToHost(cuda_), rows, channels, cuda_, to);
      EXPECT_EQ(*y.ToHost(cuda_), *expected.ToHost(cuda_)) << ToString(from) << " " << ToString(to);
    }
  });
}

TEST_F(CudaTensorOpsTest, TransposeWeights) {
  constexpr int64_t kChannels[][2] = {{0, 3}, {1, 1}, {7, 5}, {16, 32}, {33, 64}, {130, 9}};
  for (const DType dtype : kDTypes) {
    for (const int offsets : {1, 2, 27}) {
      for (const auto& [c_in, c_out] : kChannels) {
        SCOPED_TRACE(testing::Message() << offsets << " offsets, " << c_in << " to " << c_out
                                        << " channels, " << ToString(dtype));
        const Both w = Make(offsets * c_in, c_out, dtype), y = Make(offsets * c_out, c_in, dtype);
        for (const bool reversed : {false, true}) {
          ASSERT_TRUE(
              cpu_ops().TransposeWeights(w.cpu.view(), offsets, reversed, y.cpu.view(), cpu_).ok());
          const absl::Status status =
              ops().TransposeWeights(w.cuda.view(), offsets, reversed, y.cuda.view(), cuda_);
          ASSERT_TRUE(status.ok()) << status;
          EXPECT_EQ(*y.cuda.ToHost(cuda_), *y.cpu.ToHost(cpu_));
        }
      }
    }
  }
}

// Factors are small whole numbers, so that sums are exact in every precision and order.
struct WeightGradientCase {
  int64_t inputs, outputs;
  int offsets;
  int64_t c_in, c_out;
};

class CudaWeightGradientTest : public CudaTensorOpsTest,
                               public testing::WithParamInterface<WeightGradientCase> {
 protected:
  void Expect(const WeightGradientCase& c) {
    const KernelMap cpu_map = MakeMap(c.inputs, c.outputs, c.offsets, cpu_);
    const KernelMap map = MakeMap(c.inputs, c.outputs, c.offsets, cuda_);
    const int64_t rows = c.offsets * c.c_in;
    for (const Precision precision : kPrecisions) {
      const DType dtype = StorageOf(precision);
      const Both x = MakeWhole(c.inputs, c.c_in, dtype), dy = MakeWhole(c.outputs, c.c_out, dtype);
      const Tensor sums = *Tensor::Create(rows, c.c_out, DType::kF32, cpu_);
      ASSERT_TRUE(cpu_ops()
                      .WeightGradient(cpu_map, x.cpu.view(), dy.cpu.view(), Precision::kF32,
                                      sums.view(), cpu_)
                      .ok());
      for (const DType stored : {dtype, DType::kF32}) {
        SCOPED_TRACE(testing::Message()
                     << c.inputs << " to " << c.outputs << " rows, " << c.offsets << " offsets, "
                     << c.c_in << " to " << c.c_out << " channels, " << ToString(precision)
                     << ", stored as " << ToString(stored));
        const Tensor gradient = Make(rows, c.c_out, stored).cuda;
        const absl::Status status = ops().WeightGradient(map, x.cuda.view(), dy.cuda.view(),
                                                         precision, gradient.view(), cuda_);
        ASSERT_TRUE(status.ok()) << status;
        const Tensor rounded = *Tensor::FromHost(*sums.ToHost(cpu_), rows, c.c_out, cuda_, stored);
        EXPECT_TRUE(*gradient.ToHost(cuda_) == *rounded.ToHost(cuda_));
      }
    }
  }
};

// A test each, so that processes can share them.
TEST_P(CudaWeightGradientTest, IsTheReferences) { Expect(GetParam()); }

constexpr WeightGradientCase kWeightGradientCases[] = {
    {0, 5, 3, 4, 4},
    {5, 0, 3, 4, 4},
    {3, 2, 27, 7, 5},  // most offsets have no pair
    {500, 240, 4, 1, 1},
    {500, 240, 4, 33, 20},
    {2000, 1000, 27, 16, 32},
    {120'000, 60'000, 4, 64, 64},  // more pairs than are gathered at once
    {9, 5, 27, 400, 400},          // more f32 sums than are kept at once
    {9, 5, 1, 2100, 2100},         // the same for one offset
    // Tiles of every width, whose ranges of pairs cross offsets.
    {20'000, 20'000, 27, 32, 32},
    {20'000, 20'000, 27, 32, 128},
    {20'000, 20'000, 9, 64, 32},
    {20'000, 20'000, 9, 64, 128},
    {20'000, 20'000, 9, 128, 32},
    {20'000, 20'000, 9, 96, 64},
    {20'000, 20'000, 27, 128, 128},
    {20'000, 20'000, 9, 136, 200},
    {20'000, 20'000, 27, 96, 96},
    {20'000, 20'000, 9, 128, 256},
    {20'000, 20'000, 27, 256, 256},
    {20'000, 20'000, 9, 384, 72},
    {70, 50, 27, 96, 136},      // ranges of fewer pairs than a step
    {3000, 2000, 343, 32, 64},  // offsets in two launches
    {20'000, 20'000, 9, 129, 34},
};

INSTANTIATE_TEST_SUITE_P(Cases, CudaWeightGradientTest, testing::ValuesIn(kWeightGradientCases));

// Every kernel, and ranges that cross offsets.
constexpr WeightGradientCase kFewRows[] = {
    {900, 700, 9, 32, 64}, {900, 700, 9, 96, 72}, {900, 700, 9, 128, 128}, {900, 700, 9, 72, 256}};
INSTANTIATE_TEST_SUITE_P(FewRows, CudaWeightGradientTest, testing::ValuesIn(kFewRows));

TEST_F(CudaTensorOpsTest, PoolAndUnpool) {
  ForAll([&](int64_t rows, int64_t channels, DType dtype) {
    const int64_t outputs = rows / 2 + 1;
    const KernelMap cpu_map = MakeMap(rows, outputs, 4, cpu_);
    const KernelMap map = MakeMap(rows, outputs, 4, cuda_);
    ASSERT_EQ(ops().PoolForm(), MapForm::kNeighbourTable);
    const KernelMap table = *cuda_.backend->map_ops().To(MapForm::kNeighbourTable, map, cuda_);
    for (PoolMode mode : kModes) {
      const Both x = Make(rows, channels, dtype), y = Make(outputs, channels, dtype);
      const Both g = Make(outputs, channels, dtype), back = Make(rows, channels, dtype);
      Array<int32_t> cpu_switches = *AllocateArray<int32_t>(outputs * channels, cpu_);
      Array<int32_t> switches = *AllocateArray<int32_t>(outputs * channels, cuda_);
      const bool max = mode == PoolMode::kMax;
      ASSERT_TRUE(cpu_ops()
                      .Pool(cpu_map, mode, x.cpu.view(), y.cpu.view(),
                            max ? cpu_switches.data() : nullptr, cpu_)
                      .ok());
      ASSERT_TRUE(
          ops()
              .Pool(map, mode, x.cuda.view(), y.cuda.view(), max ? switches.data() : nullptr, cuda_)
              .ok());
      ExpectSame(y, 4);
      if (max) {
        EXPECT_EQ(*CopyToHost(switches, cuda_), *CopyToHost(cpu_switches, cpu_));
      }
      // The same bits from a table.
      const std::vector<float> pooled = *y.cuda.ToHost(cuda_);
      Array<int32_t> others = *AllocateArray<int32_t>(outputs * channels, cuda_);
      ASSERT_TRUE(
          ops()
              .Pool(table, mode, x.cuda.view(), y.cuda.view(), max ? others.data() : nullptr, cuda_)
              .ok());
      EXPECT_EQ(*y.cuda.ToHost(cuda_), pooled);
      if (max) {
        EXPECT_EQ(*CopyToHost(others, cuda_), *CopyToHost(switches, cuda_));
      }
      ASSERT_TRUE(cpu_ops()
                      .Unpool(cpu_map, mode, g.cpu.view(), max ? cpu_switches.data() : nullptr,
                              back.cpu.view(), cpu_)
                      .ok());
      ASSERT_TRUE(ops()
                      .Unpool(map, mode, g.cuda.view(), max ? switches.data() : nullptr,
                              back.cuda.view(), cuda_)
                      .ok());
      ExpectSame(back, 4);
    }
  });
}

CoordinateSetPtr SetOf(const std::vector<Coordinate>& rows, int32_t samples,
                       const ExecutionContext& context) {
  return CoordinateSet::Adopt(*CopyToBackend<Coordinate>(rows, context), {1, 1, 1}, Box{}, samples,
                              /*sorted=*/false);
}

TEST_F(CudaTensorOpsTest, GlobalPool) {
  ForAll([&](int64_t rows, int64_t channels, DType dtype) {
    constexpr int64_t kSamples = 4;  // the second without rows
    std::vector<Coordinate> coordinates(rows);
    for (int64_t i = 0; i < rows; ++i) {
      coordinates[i].b = i % 5 == 0 ? 3 : i < rows / 2 ? 0 : 2;
    }
    const CoordinateSetPtr cpu_set = SetOf(coordinates, kSamples, cpu_);
    const CoordinateSetPtr cuda_set = SetOf(coordinates, kSamples, cuda_);
    const Both x = Make(rows, channels, dtype), y = Make(kSamples, channels, dtype);
    for (PoolMode mode : {PoolMode::kMax, PoolMode::kSum, PoolMode::kAveragePresent}) {
      ASSERT_TRUE(cpu_ops().GlobalPool(*cpu_set, mode, x.cpu.view(), y.cpu.view(), cpu_).ok());
      const int64_t waits = cuda_.backend->synchronisations();
      const absl::Status status =
          ops().GlobalPool(*cuda_set, mode, x.cuda.view(), y.cuda.view(), cuda_);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(cuda_.backend->synchronisations(), waits);
      ExpectSame(y, 1);
    }
  });
}

TEST_F(CudaTensorOpsTest, GlobalPoolRefusesSamplesOutside) {
  const CoordinateSetPtr set = SetOf({{0, 0, 0, 0}, {2, 0, 0, 0}, {1, 0, 0, 0}}, 3, cuda_);
  const Both x = Make(3, 2, DType::kF32), y = Make(2, 2, DType::kF32);
  EXPECT_EQ(ops().GlobalPool(*set, PoolMode::kSum, x.cuda.view(), y.cuda.view(), cuda_).message(),
            "global_pool: batch sample 2; y has 2 rows");
}

TEST_F(CudaTensorOpsTest, RefusesByNameAndValue) {
  const Both a = Make(2, 2, DType::kF32), b = Make(2, 3, DType::kF32), h = Make(2, 2, DType::kF16);
  EXPECT_EQ(ops().Add(a.cuda.view(), b.cuda.view(), false, a.cuda.view(), cuda_).message(),
            "add: b: shape [2, 3]; it must be [2, 2]");
  EXPECT_EQ(ops().Add(a.cuda.view(), h.cuda.view(), false, a.cuda.view(), cuda_).message(),
            "add: b: dtype f16; it must be f32");
  EXPECT_EQ(ops().Add(a.cpu.view(), a.cuda.view(), false, a.cuda.view(), cuda_).message(),
            "add: a: it lies in host memory; the backend takes device 0");
}

// The refusal comes before any work, so this needs no second device.
TEST_F(CudaTensorOpsTest, RefusesTensorsOfAnotherDevice) {
  const Both a = Make(2, 2, DType::kF32);
  TensorView elsewhere = a.cuda.view();
  elsewhere.device.index = 1;
  EXPECT_EQ(ops().Add(a.cuda.view(), elsewhere, false, a.cuda.view(), cuda_).message(),
            "add: b: it lies in device 1; the backend takes device 0");
  EXPECT_EQ(ops().ScaleShift(a.cuda.view(), nullptr, nullptr, true, elsewhere, cuda_).message(),
            "scale_shift: y: it lies in device 1; the backend takes device 0");
  EXPECT_EQ(ops().TransposeWeights(elsewhere, 1, false, a.cuda.view(), cuda_).message(),
            "transpose_weights: weights: it lies in device 1; the backend takes device 0");
}

}  // namespace
}  // namespace voxconv
