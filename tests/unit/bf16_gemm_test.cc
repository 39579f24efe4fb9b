// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/bf16_gemm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "unit_cpu.h"
#include "voxconv/backends/cpu/amx_gemm.h"
#include "voxconv/core/half.h"

namespace voxconv {
namespace {

struct Sizes {
  int64_t rows, matrices, c_in, c_out;
};

// A product with inputs anywhere, some of them missing, and its sums in float64.
class Problem {
 public:
  static constexpr int64_t kInputs = 23;

  explicit Problem(const Sizes& sizes) : sizes_(sizes) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<uint16_t>& bits, int64_t size) {
      for (int64_t i = 0; i < size; ++i) bits.push_back(FloatToBf16Bits(normal(random)));
    };
    fill(input_, kInputs * sizes.c_in);
    fill(weights_, sizes.matrices * sizes.c_in * sizes.c_out);
    for (int64_t k = 0; k < sizes.matrices; k += 2) steps_.push_back(static_cast<int32_t>(k));
    for (size_t i = 0; i < steps_.size() * sizes.rows; ++i) {
      in_.push_back(static_cast<int32_t>(random() % (kInputs + 1)) - 1);
    }
    for (int64_t i = 0; i < sizes.rows; ++i) {
      out_.push_back(static_cast<int32_t>(sizes.rows - 1 - i));
    }
  }

  std::vector<uint16_t>& input() { return input_; }

  std::vector<float> Run(int64_t first, int64_t count, bool widened = false) const {
    const int64_t c_in = sizes_.c_in, c_out = sizes_.c_out;
    const UnitCpu cpu(2);
    Array<uint16_t> packed =
        *AllocateArray<uint16_t>(sizes_.matrices * PackedBf16WeightSize(c_in, c_out), cpu.context);
    PackBf16Weights(weights_.data(), sizes_.matrices, c_in, c_out, packed.data(), cpu.context);
    const std::vector<uint16_t> zeros(c_in, 0);
    std::vector<uint16_t> output(sizes_.rows * c_out, FloatToBf16Bits(77));
    const auto multiply = widened ? IndirectWidenedBf16Gemm : IndirectBf16Gemm;
    multiply({input_.data(), zeros.data(), packed.data(), output.data(), c_in, c_out}, steps_,
             {count, in_.data() + first, sizes_.rows, out_.data() + first});
    std::vector<float> values;
    values.reserve(output.size());
    for (const uint16_t bits : output) values.push_back(Bf16BitsToFloat(bits));
    return values;
  }

  // The same step by step, into sums that are rounded at the end. The first step's products
  // overwrite if `overwrite`; rows without an input are cleared before.
  std::vector<float> RunOnSums(bool widened, bool overwrite) const {
    const int64_t c_in = sizes_.c_in, c_out = sizes_.c_out, width = Bf16SumWidth(c_out);
    constexpr int64_t kFirstOut = 5;  // of a tile that begins there
    const UnitCpu cpu(1);
    const int64_t matrix_size = PackedBf16WeightSize(c_in, c_out);
    Array<uint16_t> packed = *AllocateArray<uint16_t>(sizes_.matrices * matrix_size, cpu.context);
    PackBf16Weights(weights_.data(), sizes_.matrices, c_in, c_out, packed.data(), cpu.context);
    std::vector<float> sums(sizes_.rows * width, 0.0f);
    for (size_t s = 0; s < steps_.size(); ++s) {
      std::vector<int32_t> in, out;
      for (int64_t i = 0; i < sizes_.rows; ++i) {
        if (in_[s * sizes_.rows + i] < 0) continue;
        in.push_back(in_[s * sizes_.rows + i]);
        out.push_back(static_cast<int32_t>(out_[i] + kFirstOut));
      }
      const bool first = s == 0 && overwrite;
      if (first) {
        for (const int32_t row : out) std::fill_n(&sums[(row - kFirstOut) * width], width, 77.0f);
      }
      for (int64_t panel = 0; panel < Bf16Panels(c_out); ++panel) {
        (widened ? AddWidenedBf16Products : AddBf16Products)(
            {input_.data(), packed.data() + steps_[s] * matrix_size, sums.data(), c_in, c_out},
            {static_cast<int64_t>(in.size()), in.data(), out.data(), kFirstOut}, panel,
            first ? ProductMode::kOverwrite : ProductMode::kAccumulate);
      }
    }
    std::vector<uint16_t> output(sizes_.rows * c_out + 1, FloatToBf16Bits(77));
    RoundBf16Sums(sums.data(), sizes_.rows, c_out, output.data());
    EXPECT_EQ(Bf16BitsToFloat(output.back()), 77);
    std::vector<float> values;
    values.reserve(output.size());
    for (const uint16_t bits : output) values.push_back(Bf16BitsToFloat(bits));
    values.pop_back();
    return values;
  }

  // The products of `count` rows with the first matrix by AMX, added to themselves.
  std::vector<float> RunOnTiles(int64_t first, int64_t count) const {
    const int64_t c_in = sizes_.c_in, c_out = sizes_.c_out, width = Bf16SumWidth(c_out);
    const UnitCpu cpu(1);
    Array<uint16_t> packed =
        *AllocateArray<uint16_t>(sizes_.matrices * PackedBf16WeightSize(c_in, c_out), cpu.context);
    Array<uint16_t> scratch = *AllocateArray<uint16_t>(AmxScratchSize(c_in), cpu.context);
    Array<float> sums = *AllocateArray<float>(sizes_.rows * width, cpu.context);
    std::fill_n(sums.data(), sizes_.rows * width, 77.0f);
    PackBf16Weights(weights_.data(), sizes_.matrices, c_in, c_out, packed.data(), cpu.context);
    std::vector<int32_t> in;
    for (int64_t i = 0; i < sizes_.rows; ++i) in.push_back(std::max(in_[i], 0));
    const Bf16SumOperands operands{input_.data(), packed.data(), sums.data(), c_in, c_out};
    const Bf16Pairs pairs{count, in.data() + first, out_.data() + first};
    AddAmxProducts(operands, pairs, ProductMode::kOverwrite, scratch.data());
    AddAmxProducts(operands, pairs, ProductMode::kAccumulate, scratch.data());
    std::vector<float> values;
    for (int64_t i = 0; i < sizes_.rows; ++i) {
      values.insert(values.end(), sums.data() + i * width, sums.data() + i * width + c_out);
    }
    return values;
  }

  // The same sum of one row by the rule that the header gives.
  float SumOfTiles(int64_t i, int64_t column) const {
    const uint16_t* x = &input_[std::max(in_[i], 0) * sizes_.c_in];
    float product = 0;
    for (int64_t c = 0; c < sizes_.c_in; c += 32) {
      float chains[2] = {};
      for (int64_t j = c; j < c + 32; ++j) {
        const float weight = Bf16BitsToFloat(weights_[j * sizes_.c_out + column]);
        chains[j % 2] = std::fma(Bf16BitsToFloat(x[j]), weight, chains[j % 2]);
      }
      product += chains[0] + chains[1];
    }
    return product + product;
  }

  // The sums, and those of the magnitudes.
  std::pair<std::vector<double>, std::vector<double>> Sums() const {
    std::vector<double> sums(sizes_.rows * sizes_.c_out, 0), magnitudes = sums;
    for (int64_t i = 0; i < sizes_.rows; ++i) {
      for (size_t s = 0; s < steps_.size(); ++s) {
        const int32_t row = in_[s * sizes_.rows + i];
        if (row < 0) continue;
        for (int64_t c = 0; c < sizes_.c_in; ++c) {
          const double x = Bf16BitsToFloat(input_[row * sizes_.c_in + c]);
          for (int64_t o = 0; o < sizes_.c_out; ++o) {
            const double product =
                x * Bf16BitsToFloat(weights_[(steps_[s] * sizes_.c_in + c) * sizes_.c_out + o]);
            sums[out_[i] * sizes_.c_out + o] += product;
            magnitudes[out_[i] * sizes_.c_out + o] += std::abs(product);
          }
        }
      }
    }
    return {sums, magnitudes};
  }

 private:
  Sizes sizes_;
  std::vector<uint16_t> input_, weights_;
  std::vector<int32_t> steps_, in_, out_;
};

// One and several rows, tiles and panels; odd channels; nothing.
constexpr Sizes kSizes[] = {{1, 1, 1, 1},   {3, 3, 2, 16},    {8, 5, 3, 17},   {9, 27, 16, 32},
                            {17, 4, 5, 33}, {50, 27, 64, 64}, {7, 9, 31, 100}, {0, 3, 4, 4}};

TEST(Bf16GemmTest, MatchesBruteForce) {
  for (const Sizes& sizes : kSizes) {
    const Problem problem(sizes);
    const auto [sums, magnitudes] = problem.Sums();
    for (const bool widened : {false, true}) {
      const std::vector<float> output = problem.Run(0, sizes.rows, widened);
      for (size_t i = 0; i < sums.size(); ++i) {
        // One rounding to 8 bits, and f32's of the sums.
        ASSERT_NEAR(output[i], sums[i], 0x1p-8 * std::abs(sums[i]) + 1e-5 * magnitudes[i])
            << sizes.rows << " rows, " << sizes.c_in << " -> " << sizes.c_out << ", " << i;
      }
    }
  }
}

TEST(Bf16GemmTest, SumsOfStepsAreTheSameBits) {
  for (const Sizes& sizes : kSizes) {
    const Problem problem(sizes);
    for (const bool widened : {false, true}) {
      const std::vector<float> whole = problem.Run(0, sizes.rows, widened);
      for (const bool overwrite : {false, true}) {
        EXPECT_EQ(problem.RunOnSums(widened, overwrite), whole)
            << sizes.rows << " rows, " << sizes.c_in << " -> " << sizes.c_out;
      }
    }
  }
}

TEST(Bf16GemmTest, ARowDoesNotDependOnTheOthers) {
  const Sizes sizes{13, 9, 7, 40};
  const Problem problem(sizes);
  const std::vector<float> all = problem.Run(0, sizes.rows);
  for (int64_t row = 0; row < sizes.rows; ++row) {
    const std::vector<float> one = problem.Run(row, 1);
    const int64_t at = (sizes.rows - 1 - row) * sizes.c_out;
    for (int64_t o = 0; o < sizes.c_out; ++o) {
      ASSERT_EQ(one[at + o], all[at + o]);
      // No other row is written.
      ASSERT_EQ(one[(at + sizes.c_out) % (sizes.rows * sizes.c_out) + o], 77);
    }
  }
}

// The channel behind an odd last one belongs to the next row, and is not read with it.
TEST(Bf16GemmTest, NanStaysInItsRow) {
  const Sizes sizes{6, 3, 5, 20};
  Problem problem(sizes);
  for (int64_t c = 0; c < sizes.c_in; ++c) {
    problem.input()[3 * sizes.c_in + c] = FloatToBf16Bits(std::numeric_limits<float>::quiet_NaN());
  }
  const std::vector<double> sums = problem.Sums().first;
  for (const bool widened : {false, true}) {
    const std::vector<float> output = problem.Run(0, sizes.rows, widened);
    for (size_t i = 0; i < sums.size(); ++i) {
      ASSERT_EQ(std::isnan(output[i]), std::isnan(sums[i])) << i;
    }
  }
}

class AmxGemmTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasAmxProducts()) GTEST_SKIP() << "this processor has no AMX";
  }
};

// Blocks and panels that are full and not.
constexpr Sizes kTileSizes[] = {{1, 1, 32, 1}, {16, 1, 64, 16}, {33, 1, 96, 40}, {75, 1, 256, 64}};

TEST_F(AmxGemmTest, SumsFollowTheRuleToTheBit) {
  for (const Sizes& sizes : kTileSizes) {
    const Problem problem(sizes);
    const std::vector<float> sums = problem.RunOnTiles(0, sizes.rows);
    for (int64_t i = 0; i < sizes.rows; ++i) {
      for (int64_t column = 0; column < sizes.c_out; ++column) {
        ASSERT_EQ(sums[(sizes.rows - 1 - i) * sizes.c_out + column], problem.SumOfTiles(i, column))
            << sizes.rows << " rows, " << sizes.c_in << " -> " << sizes.c_out << ", row " << i;
      }
    }
  }
}

TEST_F(AmxGemmTest, NanStaysInItsRowAndOthersAreNotWritten) {
  const Sizes sizes{60, 1, 64, 20};
  Problem problem(sizes);
  std::fill_n(problem.input().begin() + 3 * sizes.c_in, sizes.c_in,
              FloatToBf16Bits(std::numeric_limits<float>::quiet_NaN()));
  const std::vector<float> sums = problem.RunOnTiles(5, 40);
  for (int64_t i = 0; i < sizes.rows; ++i) {
    for (int64_t column = 0; column < sizes.c_out; ++column) {
      const float sum = sums[(sizes.rows - 1 - i) * sizes.c_out + column];
      if (i < 5 || i >= 45) {
        ASSERT_EQ(sum, 77) << i;
      } else {
        ASSERT_EQ(std::isnan(sum), std::isnan(problem.SumOfTiles(i, column))) << i;
      }
    }
  }
}

}  // namespace
}  // namespace voxconv
