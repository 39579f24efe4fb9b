// SPDX-License-Identifier: Apache-2.0
// The bounds of verify/bounds.h: honest kernels pass, and the faults that they are for do not.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/verify/bounds.h"
#include "voxconv/verify/matrix.h"
#include "voxconv/verify/oracle.h"
#include "voxconv/verify/problem.h"

namespace voxconv::verify {
namespace {

using ::testing::HasSubstr;

constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kTf32, Precision::kF16,
                                     Precision::kBF16};

enum class Order {
  kSequential,  // one product after the other, rounded to nearest
  kTree,        // neighbours first
  kOffsets,     // the sum of each offset, then the sum of these
  kTruncating,  // as a tensor core: blocks of aligned addends whose low bits are cut off
};
constexpr Order kOrders[] = {Order::kSequential, Order::kTree, Order::kOffsets, Order::kTruncating};

// `values` as a tensor stores them that computes in `precision`.
std::vector<float> StoredAs(Precision precision, std::vector<float> values) {
  return RoundedTo(PrecisionOf(StorageOf(precision)), std::move(values));
}

float Tree(std::vector<float> terms) {
  for (; terms.size() > 1; terms.resize((terms.size() + 1) / 2)) {
    for (size_t i = 0; i < terms.size(); i += 2) {
      terms[i / 2] = i + 1 < terms.size() ? terms[i] + terms[i + 1] : terms[i];
    }
  }
  return terms.empty() ? 0 : terms[0];
}

// `sum` plus a block of exact products: all aligned to the largest, 24 bits kept.
float TruncatedBlock(float sum, const std::vector<double>& products) {
  double largest = std::abs(double{sum});
  for (const double product : products) largest = std::max(largest, std::abs(product));
  if (largest == 0) return 0;
  const double ulp = std::exp2(std::ilogb(largest) - 23);
  double total = std::trunc(sum / ulp);
  for (const double product : products) total += std::trunc(product / ulp);
  total *= ulp;
  if (total == 0) return 0;
  const double last = std::exp2(std::ilogb(total) - 23);
  return static_cast<float>(std::trunc(total / last) * last);
}

// One output row of a convolution as a kernel of `order` computes it.
class Kernel {
 public:
  Kernel(const reference::KernelMap& map, Order order, bool rounds_partial_sums = false)
      : map_(map), order_(order), rounds_partial_sums_(rounds_partial_sums) {}

  std::vector<float> Run(const Operands& operands) const {
    const reference::ConvShape& shape = operands.shape;
    std::vector<float> output(shape.num_outputs * shape.c_out);
    std::vector<std::vector<int64_t>> pairs(shape.num_outputs);
    std::vector<int> offsets(map_.in.size());
    for (int k = 0; k < map_.num_offsets; ++k) {
      for (int64_t i = map_.offset_ptr[k]; i < map_.offset_ptr[k + 1]; ++i) {
        pairs[map_.out[i]].push_back(i);
        offsets[i] = k;
      }
    }
    for (int64_t row = 0; row < shape.num_outputs; ++row) {
      for (int64_t c = 0; c < shape.c_out; ++c) {
        output[row * shape.c_out + c] = Sum(operands, pairs[row], offsets, c);
      }
    }
    return StoredAs(operands.precision, output);
  }

 private:
  float Sum(const Operands& operands, const std::vector<int64_t>& pairs,
            const std::vector<int>& offsets, int64_t c) const {
    const reference::ConvShape& shape = operands.shape;
    float sum = 0;
    std::vector<float> partials, all;
    for (const int64_t i : pairs) {
      std::vector<double> products;
      for (int64_t ci = 0; ci < shape.c_in; ++ci) {
        products.push_back(double{operands.features[map_.in[i] * shape.c_in + ci]} *
                           operands.weights[(offsets[i] * shape.c_in + ci) * shape.c_out + c]);
      }
      if (order_ == Order::kTruncating) {
        constexpr size_t kBlock = 4;
        for (size_t b = 0; b < products.size(); b += kBlock) {
          sum = TruncatedBlock(sum, {products.begin() + b,
                                     products.begin() + std::min(b + kBlock, products.size())});
        }
        continue;
      }
      float partial = 0;
      for (const double product : products) {
        all.push_back(static_cast<float>(product));
        partial += all.back();
        if (order_ == Order::kSequential) sum += all.back();
      }
      if (rounds_partial_sums_) partial = StoredAs(operands.precision, {partial})[0];
      partials.push_back(partial);
    }
    if (order_ == Order::kTree) return Tree(all);
    if (order_ == Order::kOffsets) return Tree(partials);
    return sum;
  }

  const reference::KernelMap& map_;
  const Order order_;
  const bool rounds_partial_sums_;
};

struct Channels {
  int64_t in, out;
};

class BoundsTest : public ::testing::TestWithParam<Precision> {
 protected:
  // verify's own: the scene of its dataflow cases under a submanifold kernel.
  BoundsTest() : problem_(MakeProblem(GeometryNamed("submanifold_k3"), Scenes()[1])) {}

  ExactConvolution Exact(const Channels& channels, Precision precision) const {
    const auto rows = static_cast<int64_t>(problem_->inputs.size());
    return {problem_->map, RoundedOperands({rows, rows, channels.in, channels.out}, precision,
                                           Values(rows * channels.in, 11),
                                           Values(27 * channels.in * channels.out, 12))};
  }
  Kernel Honest(Order order = Order::kSequential) const { return {problem_->map, order}; }

  // One input channel does not count at one kernel offset.
  static Operands WithoutAChannel(Operands operands, int offset, int64_t channel) {
    const reference::ConvShape& shape = operands.shape;
    const auto row = operands.weights.begin() + (offset * shape.c_in + channel) * shape.c_out;
    std::fill(row, row + shape.c_out, 0.0f);
    return operands;
  }

  std::unique_ptr<Problem> problem_;
};

INSTANTIATE_TEST_SUITE_P(Precisions, BoundsTest, ::testing::ValuesIn(kPrecisions),
                         [](const auto& info) { return std::string(ToString(info.param)); });

TEST_P(BoundsTest, HonestKernelsPassInAnyOrder) {
  for (const Channels& channels : {Channels{1, 3}, {16, 33}, {257, 24}}) {
    const ExactConvolution exact = Exact(channels, GetParam());
    const Expected expected = exact.Expect({});
    for (const Order order : kOrders) {
      if (GetParam() == Precision::kF32 && order == Order::kTruncating) continue;
      EXPECT_EQ(CheckOutput(Honest(order).Run(exact.operands()), expected), absl::OkStatus())
          << channels.in << " -> " << channels.out << ", order " << static_cast<int>(order);
    }
  }
}

TEST_P(BoundsTest, ALostChannelAtOneOffsetIsFound) {
  const ExactConvolution exact = Exact({257, 64}, GetParam());
  const Expected expected = exact.Expect({});
  // The first, the middle and the last offset, the first and the last channel.
  for (const int offset : {0, 13, 26}) {
    for (const int64_t channel : {int64_t{0}, int64_t{256}}) {
      const Operands operands = WithoutAChannel(exact.operands(), offset, channel);
      EXPECT_FALSE(CheckOutput(Honest().Run(operands), expected).ok())
          << "offset " << offset << ", channel " << channel;
    }
  }
}

TEST_P(BoundsTest, OperandsOfAWorsePrecisionAreFound) {
  const ExactConvolution exact = Exact({33, 64}, GetParam());
  for (const Precision worse : kPrecisions) {
    const Operands& right = exact.operands();
    // f16 has the mantissa of tf32. In -1 .. 1 it loses bits of the smallest numbers alone.
    if (right.precision == Precision::kTf32 && worse == Precision::kF16) continue;
    const Operands operands = {right.shape, right.precision, RoundedTo(worse, right.features),
                               RoundedTo(worse, right.weights)};
    if (operands.features == right.features) continue;  // no worse
    EXPECT_FALSE(CheckOutput(Honest().Run(operands), exact.Expect({})).ok()) << ToString(worse);
  }
}

TEST_P(BoundsTest, RoundedPartialSumsPassWhereTheyAreClaimedAlone) {
  const ExactConvolution exact = Exact({64, 33}, GetParam());
  const std::vector<float> output =
      Kernel(problem_->map, Order::kOffsets, /*rounds_partial_sums=*/true).Run(exact.operands());
  EXPECT_EQ(CheckOutput(output, exact.Expect({.rounds_partial_sums = true})), absl::OkStatus());
  const bool rounds = GetParam() == Precision::kF16 || GetParam() == Precision::kBF16;
  if (rounds) {
    EXPECT_FALSE(CheckOutput(output, exact.Expect({})).ok());
  }
  // The wider bound still finds the fault.
  const Operands faulty = WithoutAChannel(exact.operands(), 13, 7);
  EXPECT_FALSE(CheckOutput(Honest().Run(faulty), exact.Expect({.rounds_partial_sums = true})).ok());
}

TEST_P(BoundsTest, EpiloguesScaleTheBound) {
  const Precision precision = GetParam();
  const ExactConvolution exact = Exact({257, 64}, precision);
  const auto elements = static_cast<int64_t>(exact.values().size());
  const HostEpilogue epilogue{Values(64, 13), Values(64, 14),
                              RoundedTo(precision, Values(elements, 15)), /*relu=*/true};
  const auto apply = [&](const Operands& operands) {
    // The sum in f32, which Run would store.
    Operands f32 = operands;
    f32.precision = Precision::kF32;
    std::vector<float> y = Honest().Run(f32);
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = y[i] * epilogue.scale[i % 64] + epilogue.shift[i % 64] + epilogue.residual[i];
      y[i] = std::max(y[i], 0.0f);
    }
    return StoredAs(precision, y);
  };
  const Expected expected = exact.Expect({}, epilogue);
  EXPECT_EQ(CheckOutput(apply(exact.operands()), expected), absl::OkStatus());
  EXPECT_FALSE(CheckOutput(apply(WithoutAChannel(exact.operands(), 13, 256)), expected).ok());
}

TEST_P(BoundsTest, OneWrongElementOrNanIsFound) {
  const ExactConvolution exact = Exact({16, 33}, GetParam());
  const Expected expected = exact.Expect({});
  const std::vector<float> right = Honest().Run(exact.operands());
  std::vector<float> wrong = right;
  wrong[40] *= 1.02f;
  EXPECT_THAT(std::string(CheckOutput(wrong, expected).message()),
              HasSubstr("row 1, channel 7 is "));
  wrong = right;
  wrong[3] = std::nanf("");
  EXPECT_THAT(std::string(CheckOutput(wrong, expected).message()),
              HasSubstr("row 0, channel 3 is nan"));
  wrong.pop_back();
  EXPECT_THAT(std::string(CheckOutput(wrong, expected).message()), HasSubstr("elements"));
}

// All elements may be wrong by a little: the 2-norm tells.
TEST_P(BoundsTest, ManySmallErrorsAreFoundByTheNorm) {
  const ExactConvolution exact = Exact({257, 64}, GetParam());
  const Expected expected = exact.Expect({});
  std::vector<float> output(exact.values().begin(), exact.values().end());
  for (size_t i = 0; i < output.size(); ++i) {
    output[i] += static_cast<float>(0.9 * expected.tolerances[i].element);
  }
  EXPECT_THAT(std::string(CheckOutput(output, expected).message()), HasSubstr("norm-wise"));
}

TEST(RoundedTo, GivesTheNeighboursOfEachPrecision) {
  const float x = 1 + 0x1p-9f + 0x1p-12f;
  EXPECT_EQ(RoundedTo(Precision::kF32, {x})[0], x);
  EXPECT_EQ(RoundedTo(Precision::kTf32, {x})[0], 1 + 0x1p-9f);
  EXPECT_EQ(RoundedTo(Precision::kTf32, {1 + 0x1p-11f})[0], 1 + 0x1p-10f);  // ties away from zero
  EXPECT_EQ(RoundedTo(Precision::kF16, {1 + 0x1p-11f})[0], 1.0f);           // ties to even
  EXPECT_EQ(RoundedTo(Precision::kBF16, {x})[0], 1.0f);
}

}  // namespace
}  // namespace voxconv::verify
