// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/indirect_gemm.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "voxconv/backends/cpu/cpu_backend.h"

namespace voxconv {
namespace {

// Runs every test once for each instruction set that was compiled and that this machine has.
class IndirectGemmTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { UseTargets(GetParam()); }
  void TearDown() override { UseTargets(0); }

 private:
  static void UseTargets(int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

class Problem {
 public:
  static constexpr int64_t kInputs = 23;

  Problem(int64_t rows, int64_t matrices, int64_t c_in, int64_t c_out)
      : rows_(rows), c_in_(c_in), c_out_(c_out) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (auto [vector, size] :
         {std::pair(&input_, kInputs * c_in), std::pair(&weights_, matrices * c_in * c_out),
          std::pair(&output_, (2 * rows + 1) * c_out)}) {
      vector->resize(size);
      for (float& x : *vector) x = uniform(random_);
    }
    for (int64_t k = 0; k < matrices; k += 2) steps_.push_back(static_cast<int32_t>(k));
    for (size_t i = 0; i < steps_.size() * rows; ++i) {
      in_.push_back(static_cast<int32_t>(random_() % (kInputs + 1)) - 1);
    }
    for (int64_t i = 0; i < rows; ++i) out_.push_back(static_cast<int32_t>(2 * (rows - i) - 1));
    const ExecutionContext context{backend_.get(), &backend_->main_stream(), nullptr};
    packed_ = *AllocateArray<float>(matrices * PackedWeightSize(c_in, c_out), context);
    PackWeights(weights_.data(), matrices, c_in, c_out, packed_.data(), context);
    zero_row_.resize(c_in, 0.0f);
  }

  // `following` of the rows behind the `count` are announced.
  std::vector<float> Run(ProductMode mode, int64_t first, int64_t count, std::vector<float> output,
                         int64_t following = 0) const {
    const IndirectGemmOperands operands{
        input_.data(), zero_row_.data(), packed_.data(), output.data(), c_in_, c_out_};
    IndirectGemm(operands, steps_,
                 {count, in_.data() + first, rows_, out_.data() + first, following}, mode);
    return output;
  }
  std::vector<float> Run(ProductMode mode) const { return Run(mode, 0, rows_, output_); }

  void ExpectRight(ProductMode mode) const {
    std::vector<double> expected(output_.begin(), output_.end());
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < c_out_; ++j) {
        double& y = expected[out_[i] * c_out_ + j];
        if (mode == ProductMode::kOverwrite) y = 0;
        for (size_t s = 0; s < steps_.size(); ++s) {
          const int32_t p = in_[s * rows_ + i];
          for (int64_t c = 0; p >= 0 && c < c_in_; ++c) {
            y += double{input_[p * c_in_ + c]} * weights_[(steps_[s] * c_in_ + c) * c_out_ + j];
          }
        }
      }
    }
    const std::vector<float> actual = Run(mode);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], 1e-6 * (10 + c_in_ * steps_.size())) << i;
    }
  }

  int64_t rows() const { return rows_; }
  const std::vector<float>& output() const { return output_; }

 private:
  std::unique_ptr<CpuBackend> backend_ = *CpuBackend::Create({.threads = 1});
  std::mt19937 random_{3};
  int64_t rows_, c_in_, c_out_;
  std::vector<float> input_, weights_, output_, zero_row_;
  std::vector<int32_t> steps_, in_, out_;
  Array<float> packed_;
};

TEST_P(IndirectGemmTest, MatchesBruteForce) {
  for (int64_t rows : {0, 1, 2, 5, 6, 7, 8, 13, 17, 40}) {
    for (int64_t c_in : {1, 3, 16}) {
      for (int64_t c_out : {1, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64}) {
        SCOPED_TRACE(testing::Message() << rows << " rows, " << c_in << " -> " << c_out);
        const Problem problem(rows, 5, c_in, c_out);
        problem.ExpectRight(ProductMode::kOverwrite);
        problem.ExpectRight(ProductMode::kAccumulate);
      }
    }
  }
}

// Several panels of columns on every machine, and several parts of the rows.
TEST_P(IndirectGemmTest, ManyColumns) {
  for (int64_t rows : {1, 7, 24, 25, 61}) {
    const Problem problem(rows, 3, 33, 150);
    problem.ExpectRight(ProductMode::kOverwrite);
    problem.ExpectRight(ProductMode::kAccumulate);
  }
}

TEST_P(IndirectGemmTest, NoSteps) {
  const Problem problem(9, 0, 4, 5);
  problem.ExpectRight(ProductMode::kOverwrite);
  problem.ExpectRight(ProductMode::kAccumulate);
}

// A row's bits must not depend on the rows beside it, or results would depend on tiles. Neither on
// whether the rows behind them are announced.
TEST_P(IndirectGemmTest, RowsAreIndependent) {
  for (int64_t c_out : {33, 150}) {
    const Problem problem(59, 1, 33, c_out);
    const std::vector<float> together = problem.Run(ProductMode::kAccumulate);
    for (int64_t step : {1, 2, 4, 11, 31}) {
      std::vector<float> apart = problem.output(), announced = problem.output();
      for (int64_t first = 0; first < problem.rows(); first += step) {
        const int64_t left = problem.rows() - first, count = std::min(step, left);
        apart = problem.Run(ProductMode::kAccumulate, first, count, std::move(apart));
        announced = problem.Run(ProductMode::kAccumulate, first, count, std::move(announced),
                                /*following=*/left - count);
      }
      EXPECT_EQ(apart, together) << step;
      EXPECT_EQ(announced, together) << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, IndirectGemmTest,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

}  // namespace
}  // namespace voxconv
