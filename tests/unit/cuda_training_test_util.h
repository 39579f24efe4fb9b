// SPDX-License-Identifier: Apache-2.0
// What the tests of the training operators on CUDA share: the CPU's operators give what is
// expected, on inputs that are rounded to the dtype.
#ifndef VOXCONV_TESTS_UNIT_CUDA_TRAINING_TEST_UTIL_H_
#define VOXCONV_TESTS_UNIT_CUDA_TRAINING_TEST_UTIL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "unit_cuda.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/training_ops.h"

namespace voxconv {

inline constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// Odd sizes, sizes of whole 16-byte packs, rows of more packs than a tile of columns has, runs and
// chunks of rows that are not full, and more rows than one wave of blocks takes.
inline constexpr int64_t kShapes[][2] = {
    {0, 4},  {3, 0},    {1, 1},    {2, 8},    {37, 5},     {500, 24},     {77, 64},
    {7, 30}, {3, 2056}, {4099, 8}, {300, 33}, {700, 1100}, {100'000, 96}, {60'001, 3}};

class CudaTrainingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unit_ = UnitCuda::Create();
    if (unit_ == nullptr) GTEST_SKIP() << "no CUDA device on this machine";
    cpu_backend_ = *CpuBackend::Create({.threads = 1});
    cpu_ = {cpu_backend_.get(), &cpu_backend_->main_stream(), nullptr};
    cuda_ = unit_->context;
    ASSERT_NE(unit_->backend->training_ops(), nullptr);
  }

  // The same values on both backends.
  struct Both {
    Tensor cpu, cuda;
  };
  Both Share(const std::vector<float>& values, int64_t rows, int64_t channels,
             DType dtype = DType::kF32) {
    Both both;
    both.cuda = *Tensor::FromHost(values, rows, channels, cuda_, dtype);
    both.cpu = *Tensor::FromHost(*both.cuda.ToHost(cuda_), rows, channels, cpu_);
    return both;
  }
  // Values in [low, high), rounded to `dtype`.
  Both Make(int64_t rows, int64_t channels, DType dtype, float low = -1, float high = 1) {
    std::uniform_real_distribution<float> uniform(low, high);
    std::vector<float> values(rows * channels);
    for (float& value : values) value = uniform(random_);
    return Share(values, rows, channels, dtype);
  }
  // Whole numbers from -2 to 2.
  Both MakeWhole(int64_t rows, int64_t channels, DType dtype) {
    std::vector<float> values(rows * channels);
    for (float& value : values) value = static_cast<float>(random_() % 5) - 2;
    return Share(values, rows, channels, dtype);
  }
  // An array in f32.
  Both MakeVector(int64_t size, float low = -1, float high = 1) {
    return Make(1, size, DType::kF32, low, high);
  }
  static float* OnCpu(const Both& vector) { return vector.cpu.view().f32(); }
  static float* OnCuda(const Both& vector) { return vector.cuda.view().f32(); }

  // Each element within `bound` times the larger of `magnitude` and the expected value.
  void ExpectNear(const Both& y, double bound, double magnitude) {
    const std::vector<float> cuda = *y.cuda.ToHost(cuda_), cpu = *y.cpu.ToHost(cpu_);
    ASSERT_EQ(cuda.size(), cpu.size());
    for (size_t i = 0; i < cpu.size(); ++i) {
      ASSERT_NEAR(cuda[i], cpu[i], bound * std::max<double>(magnitude, std::abs(cpu[i])))
          << "element " << i << " of [" << y.cpu.rows() << ", " << y.cpu.channels() << "]";
    }
  }
  // ExpectNear with a bound for one rounding to the dtype.
  void ExpectRounded(const Both& y, double magnitude) {
    const DType dtype = y.cuda.view().dtype;
    ExpectNear(y, dtype == DType::kBF16 ? 4e-3 : dtype == DType::kF16 ? 1e-3 : 1e-6, magnitude);
  }
  // The CPU's result, rounded to the dtype, is CUDA's.
  void ExpectExact(const Both& y) {
    const Tensor rounded = *Tensor::FromHost(*y.cpu.ToHost(cpu_), y.cpu.rows(), y.cpu.channels(),
                                             cuda_, y.cuda.view().dtype);
    EXPECT_TRUE(*y.cuda.ToHost(cuda_) == *rounded.ToHost(cuda_));
  }

  // run() gives bitwise the same values 20 times.
  static void ExpectRepeats(const std::function<std::vector<float>()>& run) {
    const std::vector<float> first = run();
    for (int i = 1; i < 20; ++i) {
      const std::vector<float> again = run();
      ASSERT_EQ(again.size(), first.size());
      ASSERT_EQ(std::memcmp(again.data(), first.data(), first.size() * sizeof(float)), 0)
          << "run " << i;
    }
  }
  // run() takes so many launches, and the host does not wait.
  void ExpectQueues(int64_t launches, const std::function<absl::Status()>& run) {
    ExpectOk(run());  // the first time, cuBLASLt and the pool may ask for memory
    const int64_t launched = unit_->profile.counters.launches;
    const int64_t waits = unit_->backend->synchronisations();
    ExpectOk(run());
    EXPECT_EQ(unit_->profile.counters.launches - launched, launches);
    EXPECT_EQ(unit_->backend->synchronisations(), waits);
  }
  static void ExpectOk(const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; }

  TrainingOps& cpu_ops() { return *cpu_backend_->training_ops(); }
  TrainingOps& ops() { return *unit_->backend->training_ops(); }

  // Calls test(rows, channels, dtype) for all.
  static void ForAll(const std::function<void(int64_t, int64_t, DType)>& test) {
    for (const DType dtype : kDTypes) {
      for (const auto& [rows, channels] : kShapes) {
        SCOPED_TRACE(testing::Message()
                     << "[" << rows << ", " << channels << "] " << ToString(dtype));
        test(rows, channels, dtype);
      }
    }
  }

  std::mt19937 random_{5};
  std::unique_ptr<UnitCuda> unit_;
  std::unique_ptr<CpuBackend> cpu_backend_;
  ExecutionContext cpu_, cuda_;
};

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_CUDA_TRAINING_TEST_UTIL_H_
