// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/sgemm.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "voxconv/backends/cpu/cpu_backend.h"

namespace voxconv {
namespace {

std::vector<float> Uniform(int64_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(size);
  for (float& v : values) v = uniform(random);
  return values;
}

// Runs every test once for each instruction set that was compiled and that this machine has.
class SgemmTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { UseTargets(GetParam()); }
  void TearDown() override { UseTargets(0); }

 private:
  static void UseTargets(int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

// Element (i, c) of A is a[i * row_step + c * depth_step].
void ExpectProduct(int64_t m, int64_t n, int64_t k, bool transposed, ProductMode mode) {
  const std::vector<float> a = Uniform(m * k, 1), b = Uniform(k * n, 2), old = Uniform(m * n, 3);
  std::vector<float> c = old;
  if (transposed) {
    SgemmTransposedSerial(m, n, k, a.data(), b.data(), mode, c.data());
  } else {
    SgemmSerial(m, n, k, a.data(), b.data(), mode, c.data());
  }
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double expected = mode == ProductMode::kAccumulate ? old[i * n + j] : 0;
      for (int64_t d = 0; d < k; ++d) {
        expected += double{a[transposed ? d * m + i : i * k + d]} * b[d * n + j];
      }
      ASSERT_NEAR(c[i * n + j], expected, 1e-6 * static_cast<double>(k + 1)) << i << ", " << j;
    }
  }
}

TEST_P(SgemmTest, MatchesBruteForce) {
  EXPECT_STRNE(SgemmTarget(), "");
  for (int64_t m : {0, 1, 5, 7, 8, 13, 40}) {
    for (int64_t n : {1, 3, 8, 16, 17, 33, 64}) {
      for (int64_t k : {0, 1, 3, 17, 64}) {
        for (const bool transposed : {false, true}) {
          SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << " " << transposed);
          ExpectProduct(m, n, k, transposed, ProductMode::kOverwrite);
          ExpectProduct(m, n, k, transposed, ProductMode::kAccumulate);
        }
      }
    }
  }
}

// Past one packed panel in depth, and past one block of rows.
TEST_P(SgemmTest, SeveralBlocks) {
  ExpectProduct(37, 19, 700, false, ProductMode::kOverwrite);
  ExpectProduct(37, 19, 700, true, ProductMode::kAccumulate);
  ExpectProduct(1030, 5, 9, false, ProductMode::kOverwrite);
  ExpectProduct(1030, 5, 9, true, ProductMode::kOverwrite);
}

// What was in the result does not shine through, and a NaN stays in its row and its column.
TEST_P(SgemmTest, NanStaysInItsRowAndColumn) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr int64_t kRows = 21, kColumns = 35, kDepth = 300;
  std::vector<float> a = Uniform(kRows * kDepth, 1), b = Uniform(kDepth * kColumns, 2);
  std::vector<float> c(kRows * kColumns, kNan);
  a[4 * kDepth + 299] = kNan;
  b[7 * kColumns + 33] = kNan;
  SgemmSerial(kRows, kColumns, kDepth, a.data(), b.data(), ProductMode::kOverwrite, c.data());
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) {
      EXPECT_EQ(std::isnan(c[i * kColumns + j]), i == 4 || j == 33) << i << ", " << j;
    }
  }
}

// The product on the context's threads has the bits of the serial one.
TEST_P(SgemmTest, TransposedOnThreads) {
  constexpr int64_t kRows = 205, kColumns = 40, kDepth = 290;
  const std::vector<float> a = Uniform(kDepth * kRows, 1), b = Uniform(kDepth * kColumns, 2);
  const std::vector<float> old = Uniform(kRows * kColumns, 3);
  for (const ProductMode mode : {ProductMode::kOverwrite, ProductMode::kAccumulate}) {
    std::vector<float> serial = old;
    SgemmTransposedSerial(kRows, kColumns, kDepth, a.data(), b.data(), mode, serial.data());
    for (int threads : {1, 2, 4}) {
      const auto backend = *CpuBackend::Create({.threads = threads});
      const ExecutionContext context{backend.get(), &backend->main_stream(), nullptr};
      std::vector<float> together = old;
      SgemmTransposed(context, kRows, kColumns, kDepth, a.data(), b.data(), mode, together.data());
      EXPECT_EQ(together, serial) << threads;
    }
  }
}

// The same bits on every number of threads, and for every row alone.
TEST_P(SgemmTest, RowsAreIndependent) {
  constexpr int64_t kRows = 1500, kColumns = 40, kDepth = 290;
  const std::vector<float> a = Uniform(kRows * kDepth, 1), b = Uniform(kDepth * kColumns, 2);
  std::vector<float> alone(kRows * kColumns);
  for (int64_t row = 0; row < kRows; ++row) {
    SgemmSerial(1, kColumns, kDepth, a.data() + row * kDepth, b.data(), ProductMode::kOverwrite,
                alone.data() + row * kColumns);
  }
  for (int threads : {1, 2, 4}) {
    const auto backend = *CpuBackend::Create({.threads = threads});
    const ExecutionContext context{backend.get(), &backend->main_stream(), nullptr};
    std::vector<float> together(kRows * kColumns);
    Sgemm(context, kRows, kColumns, kDepth, a.data(), b.data(), ProductMode::kOverwrite,
          together.data());
    EXPECT_EQ(together, alone) << threads;
  }
}

TEST_P(SgemmTest, MultiplyAddsAreCounted) {
  EXPECT_GE(RunMultiplyAdds(1000), 2000.0);
  EXPECT_EQ(RunMultiplyAdds(0), 0.0);
}

INSTANTIATE_TEST_SUITE_P(Targets, SgemmTest, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

}  // namespace
}  // namespace voxconv
