// SPDX-License-Identifier: Apache-2.0
#include "voxconv/verify/bounds.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "voxconv/core/half.h"
#include "voxconv/verify/difference.h"

namespace voxconv::verify {
namespace {

constexpr double kDeviations = 6;
// Products of errors, which the first order leaves out: n units are below 2^-6 for n up to 2^17.
constexpr double kSecondOrder = 1 + 0x1p-6;
// Products that a tensor core adds at once, at least.
constexpr int64_t kBlock = 4;
constexpr double kF32Unit = 0x1p-24;
constexpr double kTruncationUnit = 0x1p-23;
// The root mean square of a sum of rounding errors is below half of this, see RelativeTolerance.
constexpr double kTypicalDeviations = 2;

// Half the smallest subnormal.
double StorageUnderflow(Precision precision) {
  if (precision == Precision::kF16) return 0x1p-25;
  return precision == Precision::kBF16 ? 0x1p-134 : 0x1p-150;
}

float ToTf32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  return std::bit_cast<float>((bits + 0x1000u) & ~0x1fffu);
}

// Units that the additions of an output cost at most, and typically.
struct Additions {
  double unit, most, typical;
};

Additions AdditionsOf(Precision precision, int64_t pairs, int64_t c_in) {
  if (precision == Precision::kF32) {
    const auto n = static_cast<double>(pairs * (c_in + 1));
    return {kF32Unit, std::min(n, 1 + kDeviations * std::sqrt(n)),
            std::min(n, kTypicalDeviations * std::sqrt(n))};
  }
  const int64_t blocks = (c_in + kBlock - 1) / kBlock;
  const auto n = static_cast<double>(pairs * (c_in + 2 * blocks + 1));
  return {kTruncationUnit, n, n};
}

}  // namespace

std::vector<float> RoundedTo(Precision precision, std::vector<float> values) {
  for (float& value : values) {
    switch (precision) {
      case Precision::kF32:
        return values;
      case Precision::kTf32:
        value = ToTf32(value);
        break;
      case Precision::kF16:
        value = HalfBitsToFloat(FloatToHalfBits(value));
        break;
      case Precision::kBF16:
        value = Bf16BitsToFloat(FloatToBf16Bits(value));
        break;
    }
  }
  return values;
}

double StorageUnit(Precision precision) {
  if (precision == Precision::kF16) return 0x1p-11;
  return precision == Precision::kBF16 ? 0x1p-8 : 0;
}

Tolerance SumTolerance(Precision precision, const ExactSum& sum, int64_t c_in,
                       bool rounds_partial_sums) {
  const Additions additions = AdditionsOf(precision, sum.pairs, c_in);
  const double largest = std::min(sum.magnitude, kDeviations * sum.spread);
  Tolerance tolerance;
  tolerance.element = kSecondOrder * additions.unit * additions.most * largest;
  tolerance.typical = additions.unit * additions.typical * std::min(sum.magnitude, sum.spread);
  if (rounds_partial_sums) {
    const double underflow = static_cast<double>(sum.pairs) * StorageUnderflow(precision);
    tolerance.element += kSecondOrder * StorageUnit(precision) * sum.partial_magnitude + underflow;
    tolerance.typical += StorageUnit(precision) * sum.partial_spread + underflow;
  }
  return tolerance;
}

Tolerance StoredTolerance(Precision precision, double value, const Tolerance& before) {
  const double unit = StorageUnit(precision);
  return {before.element + unit * (std::abs(value) + before.element) + StorageUnderflow(precision),
          before.typical + unit * std::abs(value) + StorageUnderflow(precision)};
}

Tolerance AffineTolerance(double sum, double scale, double shift, double residual,
                          const Tolerance& before) {
  // Three roundings at most: of the product, and of each sum.
  const double rounding =
      3 * kSecondOrder * kF32Unit * (std::abs(sum * scale) + std::abs(shift) + std::abs(residual));
  return {before.element * std::abs(scale) * kSecondOrder + rounding,
          before.typical * std::abs(scale) + rounding};
}

double RelativeTolerance(Precision precision, int64_t reduction, int stores) {
  // Rounding to nearest has errors of variance unit^2 / 3, of partial sums whose squares grow from
  // 0 to that of the output. In sequence, their root mean square is sqrt(n / 6) units, and less in
  // any other order; 2 sqrt(n) is allowed. Truncation costs half a unit in the mean, of partial
  // sums that grow likewise; all n are allowed, and half as many for the ends of blocks.
  const auto n = static_cast<double>(std::max<int64_t>(reduction, 1));
  const double sum = precision == Precision::kF32 ? kF32Unit * kTypicalDeviations * std::sqrt(n)
                                                  : kTruncationUnit * 1.5 * n;
  return sum + StorageUnit(precision) * stores;
}

double OperandTolerance(Precision precision) {
  // Two operands a product.
  return 2 * (precision == Precision::kTf32 ? 0x1p-10 : StorageUnit(precision));
}

double Expected::NormBound() const {
  double typical = 0, norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    typical += tolerances[i].typical * tolerances[i].typical;
    norm += values[i] * values[i];
  }
  return norm > 0 ? std::sqrt(typical / norm) : 0;
}

absl::Status CheckOutput(absl::Span<const float> output, const Expected& expected,
                         const LayerData* layer) {
  if (output.size() != expected.values.size()) {
    return absl::InternalError(absl::StrCat(
        "the output has ", output.size(), " elements; the reference has ", expected.values.size()));
  }
  Difference difference{expected.channels, output, expected.values, {}, 0};
  double worst_share = 1, error = 0, typical = 0;
  for (size_t i = 0; i < output.size(); ++i) {
    const double off = std::abs(output[i] - expected.values[i]);
    const Tolerance& tolerance = expected.tolerances[i];
    error += off * off;
    typical += tolerance.typical * tolerance.typical;
    // Written so that a NaN fails. It is further off than any number.
    if (off <= tolerance.element) continue;
    const double share = std::isnan(off) ? HUGE_VAL : off / tolerance.element;
    difference.wrong.push_back(static_cast<int64_t>(i));
    if (difference.wrong.size() > 1 && !(share > worst_share)) continue;
    difference.worst = static_cast<int64_t>(i);
    worst_share = share;
  }
  if (!difference.wrong.empty()) {
    return absl::InternalError(absl::StrCat(
        WorstElement(difference, layer), "; the reference has ", expected.values[difference.worst],
        ", and the bound on the error is ", expected.tolerances[difference.worst].element, "; ",
        DescribePattern(difference, layer)));
  }
  if (error <= typical) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("norm-wise error ", std::sqrt(error), " is past ",
                                          std::sqrt(typical), ", with every element in its bound"));
}

}  // namespace voxconv::verify
