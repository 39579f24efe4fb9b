// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/amx_f32_gemm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "unit_cpu.h"

namespace voxconv {
namespace {

constexpr int64_t kInputs = 70;
constexpr int64_t kOutputs = 90;
constexpr float kBefore = 0.5f;  // what the output holds

struct Sizes {
  int64_t rows, c_in, c_out;
};

// Two products on the same rows of an output: the first overwrites them, the second adds.
class Problem {
 public:
  explicit Problem(const Sizes& sizes) : sizes_(sizes) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < kInputs * sizes.c_in; ++i) input_.push_back(normal(random));
    for (int64_t i = 0; i < 2 * sizes.c_in * sizes.c_out; ++i) weights_.push_back(normal(random));
    for (int64_t i = 0; i < 2 * sizes.rows; ++i) {
      in_.push_back(static_cast<int32_t>(random() % kInputs));
    }
    out_.resize(kOutputs);
    std::iota(out_.begin(), out_.end(), 0);
    std::shuffle(out_.begin(), out_.end(), random);
  }

  float* input(int64_t row) { return &input_[row * sizes_.c_in]; }
  std::vector<float>& weights() { return weights_; }
  int32_t in(int64_t product, int64_t i) const { return in_[product * sizes_.rows + i]; }
  int32_t out(int64_t i) const { return out_[i]; }

  bool Pack(const UnitCpu& cpu, Array<uint16_t>& packed) const {
    const int64_t c_in = sizes_.c_in, c_out = sizes_.c_out;
    packed = *AllocateArray<uint16_t>(2 * PackedAmxF32WeightSize(c_in, c_out), cpu.context);
    return PackAmxF32Weights(weights_.data(), 2, c_in, c_out, packed.data(), cpu.context);
  }

  // The products of the rows [first, first + count).
  std::vector<float> Run(int64_t first, int64_t count) const {
    const UnitCpu cpu(2);
    Array<uint16_t> packed;
    EXPECT_TRUE(Pack(cpu, packed));
    Array<char> scratch = *AllocateArray<char>(AmxF32ScratchBytes(sizes_.c_in), cpu.context);
    std::vector<float> output(kOutputs * sizes_.c_out, kBefore);
    const auto pairs = [&](int64_t product) {
      return AmxF32Pairs{.matrix = 1 - product,
                         .count = count,
                         .in = in_.data() + product * sizes_.rows + first,
                         .out = out_.data() + first,
                         .overwrite = product == 0};
    };
    AddAmxF32Products({input_.data(), packed.data(), output.data(), sizes_.c_in, sizes_.c_out},
                      {pairs(0), {.matrix = 0}, pairs(1)}, scratch.data());
    return output;
  }

  // One element by multiply-adds: each product from zero.
  template <typename T>
  T Sum(int64_t i, int64_t column) const {
    T products[2] = {};
    for (int64_t product = 0; product < 2; ++product) {
      const float* x = &input_[in(product, i) * sizes_.c_in];
      const float* w = &weights_[(1 - product) * sizes_.c_in * sizes_.c_out + column];
      for (int64_t c = 0; c < sizes_.c_in; ++c) {
        products[product] = std::fma(T{x[c]}, T{w[c * sizes_.c_out]}, products[product]);
      }
    }
    return products[0] + products[1];
  }

  // The norm of an element's addends.
  double Norm(int64_t i, int64_t column) const {
    double squares = 0;
    for (int64_t product = 0; product < 2; ++product) {
      const float* x = &input_[in(product, i) * sizes_.c_in];
      const float* w = &weights_[(1 - product) * sizes_.c_in * sizes_.c_out + column];
      for (int64_t c = 0; c < sizes_.c_in; ++c) {
        squares += std::pow(double{x[c]} * double{w[c * sizes_.c_out]}, 2);
      }
    }
    return std::sqrt(squares);
  }

 private:
  Sizes sizes_;
  std::vector<float> input_, weights_;
  std::vector<int32_t> in_, out_;
};

class AmxF32GemmTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!TakesAmxF32Products(32)) GTEST_SKIP() << "this processor has no AMX";
  }
};

// Blocks and panels that are full and not.
constexpr Sizes kSizes[] = {{0, 32, 32}, {1, 32, 1},   {16, 64, 16}, {17, 32, 40},
                            {33, 96, 7}, {49, 64, 96}, {75, 256, 64}};

TEST_F(AmxF32GemmTest, IsAsExactAsF32) {
  for (const Sizes& sizes : kSizes) {
    SCOPED_TRACE(testing::Message()
                 << sizes.rows << " rows, " << sizes.c_in << " -> " << sizes.c_out);
    const Problem problem(sizes);
    const std::vector<float> output = problem.Run(0, sizes.rows);
    for (int64_t i = 0; i < kOutputs; ++i) {
      for (int64_t column = 0; column < sizes.c_out; ++column) {
        const float actual = output[problem.out(i) * sizes.c_out + column];
        if (i >= sizes.rows) {
          ASSERT_EQ(actual, kBefore) << i;
          continue;
        }
        // A chain of multiply-adds is off by 20 to 50 of these units.
        ASSERT_NEAR(actual, problem.Sum<double>(i, column), 12 * 0x1p-24 * problem.Norm(i, column))
            << i << ", " << column;
      }
    }
  }
}

TEST_F(AmxF32GemmTest, ARowDoesNotDependOnTheOthers) {
  const Sizes sizes{75, 64, 72};
  const Problem problem(sizes);
  const std::vector<float> all = problem.Run(0, sizes.rows);
  for (const int64_t first : {0, 1, 40, 74}) {
    const std::vector<float> one = problem.Run(first, 1);
    for (int64_t column = 0; column < sizes.c_out; ++column) {
      const int64_t at = problem.out(first) * sizes.c_out + column;
      ASSERT_EQ(one[at], all[at]) << first;
    }
  }
}

// Rows with numbers that have no three parts are multiplied as multiply-adds would.
TEST_F(AmxF32GemmTest, OtherRowsAreMultiplyAdds) {
  const Sizes sizes{60, 64, 72};
  constexpr float kNumbers[] = {std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::max(),
                                std::numeric_limits<float>::denorm_min(),
                                -0x1p48f,
                                0x1.fffffep-49f};
  for (const float number : kNumbers) {
    Problem problem(sizes);
    for (int64_t row = 0; row < kInputs; row += 3) problem.input(row)[row % sizes.c_in] = number;
    const Problem regular(sizes);
    const std::vector<float> output = problem.Run(0, sizes.rows);
    const std::vector<float> expected = regular.Run(0, sizes.rows);
    for (int64_t i = 0; i < sizes.rows; ++i) {
      const bool others[2] = {problem.in(0, i) % 3 == 0, problem.in(1, i) % 3 == 0};
      for (int64_t column = 0; column < sizes.c_out; ++column) {
        const int64_t at = problem.out(i) * sizes.c_out + column;
        if (others[0] && others[1]) {
          const auto sum = problem.Sum<float>(i, column);
          ASSERT_TRUE(output[at] == sum || (std::isnan(output[at]) && std::isnan(sum))) << number;
        } else if (!others[0] && !others[1]) {
          ASSERT_EQ(output[at], expected[at]) << number;
        }
      }
    }
  }
}

// Parts of small and of large numbers are exact, and zeros stay zeros.
TEST_F(AmxF32GemmTest, PartsAreExact) {
  const Sizes sizes{40, 32, 33};
  for (const float scale : {0x1p-48f, 0x1p46f, 0.0f}) {
    Problem problem(sizes);
    for (int64_t row = 0; row < kInputs; ++row) {
      // One number a row, so that a product has no other addend.
      std::fill_n(problem.input(row), sizes.c_in, 0.0f);
      problem.input(row)[row % sizes.c_in] = scale * (1 + static_cast<float>(row) * 0x1p-23f);
    }
    std::fill(problem.weights().begin(), problem.weights().end(), 1.0f);
    const std::vector<float> output = problem.Run(0, sizes.rows);
    for (int64_t i = 0; i < sizes.rows; ++i) {
      for (int64_t column = 0; column < sizes.c_out; ++column) {
        ASSERT_EQ(output[problem.out(i) * sizes.c_out + column], problem.Sum<float>(i, column));
      }
    }
  }
}

TEST_F(AmxF32GemmTest, WeightsWithoutPartsAreRefused) {
  const Sizes sizes{1, 32, 40};
  for (const float number : {std::numeric_limits<float>::infinity(), 0x1p48f, 0x1p-49f}) {
    Problem problem(sizes);
    const UnitCpu cpu(2);
    Array<uint16_t> packed;
    EXPECT_TRUE(problem.Pack(cpu, packed));
    problem.weights()[1300] = number;
    EXPECT_FALSE(problem.Pack(cpu, packed)) << number;
  }
}

}  // namespace
}  // namespace voxconv
