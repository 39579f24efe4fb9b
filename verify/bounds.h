// SPDX-License-Identifier: Apache-2.0
// How far an honest kernel may be from the exact sum, element by element. Derived, not tuned.
//
// All operands are representable in the case's precision, and the reference multiplies the same
// numbers. Two 11-bit significands (f16, tf32) or 8-bit ones (bf16) have an exact product in f32.
// Hence a kernel errs only where it adds in f32 and where it stores a result in 16 bits.
//
// In tf32, a tensor core cuts the low 13 bits of an operand off, and our kernels round the operand
// to nearest before that. Neither changes a number whose low 13 bits are 0. Hence the bound holds
// for both, and for a kernel that multiplies in full f32.
//
// ADDITIONS. An output sums n products t_i in any order, with M the largest |partial sum|. One
// addition errs by at most unit * M:
//   f32                unit = 2^-24: IEEE rounding to nearest.
//   tf32, f16, bf16    unit = 2^-23: a tensor core aligns its addends to the largest and cuts bits
//                      off, so each addend loses less than 2^-23 of the largest, and the result
//                      once more (Fasi et al., 2021). A block of m products and the sum so far is
//                      then m + 2 such losses. m is 4 at least, so an offset with C_in products
//                      has C_in + 2 ceil(C_in / 4) of them.
// The sum of an offset may be stored in f32 and added to the output's sum: one more an offset.
//
// M is at most sum |t_i|, whatever the data. The data of verify, and weights from
// InitializeParameters, have independent random signs. Hoeffding's inequality then bounds each
// partial sum by kDeviations * sqrt(sum t_i^2), but for one in 10^7.
//
// Errors of rounding to nearest have a mean of zero: they add up to 1 + kDeviations * sqrt(n) units
// at most (Higham and Mary, 2019). Those of truncation all point to zero and add up to n units.
//
// STORES. Rounding a value v to 16 bits errs by at most u |v| (u = 2^-11 in f16, 2^-8 in bf16), and
// by half the smallest subnormal.
#ifndef VOXCONV_VERIFY_BOUNDS_H_
#define VOXCONV_VERIFY_BOUNDS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "voxconv/core/types.h"

namespace voxconv::verify {

constexpr double Square(double value) { return value * value; }

// `values` as `precision` holds them, widened: f16 and bf16 to nearest even, tf32 to nearest with
// ties away from zero. f32 stays as it is.
std::vector<float> RoundedTo(Precision precision, std::vector<float> values);

// The relative error of storing an f32 number as StorageOf(precision). 0 for f32 and tf32.
double StorageUnit(Precision precision);

// The exact sum of one output element, and the numbers that its bound depends on.
struct ExactSum {
  double value = 0;
  double magnitude = 0;  // sum |x||w|
  double spread = 0;     // sqrt(sum x^2 w^2)
  // sum |s| and sqrt(sum s^2) over the pairs' sums s = x[p] . w[k]. Needed if a kernel rounds
  // these.
  double partial_magnitude = 0, partial_spread = 0;
  int64_t pairs = 0;  // of the output row
};

// Absolute errors of one element. The error of an honest kernel is at most `element`. `typical` is
// less: about twice the root mean square of the error or more. It bounds the 2-norm over all
// elements.
struct Tolerance {
  double element = 0;
  double typical = 0;
};

// The tolerance of the f32 sum before it is stored. `rounds_partial_sums`: each x[p] . w[k] is
// rounded to StorageOf(precision) before it is added.
Tolerance SumTolerance(Precision precision, const ExactSum& sum, int64_t c_in,
                       bool rounds_partial_sums);

// The tolerance of `value`, which is known within `before`, after it is stored as
// StorageOf(precision).
Tolerance StoredTolerance(Precision precision, double value, const Tolerance& before);

// The tolerance of sum * scale + shift + residual, computed in f32. `before` is that of the sum.
Tolerance AffineTolerance(double sum, double scale, double shift, double residual,
                          const Tolerance& before);

// A bound on the 2-norm of the error divided by that of the output, for use without a reference.
// Holds for features and weights with random signs; the 2-norm of the output is then about that of
// the spreads. `reduction`: the most products that an output sums. `stores`: how often an output is
// rounded to its dtype. Rounding the sums of all pairs counts as one store, because together they
// are about as large as the output.
double RelativeTolerance(Precision precision, int64_t reduction, int stores = 1);

// The same of rounding features and weights to `precision`, by truncation in tf32: for what is
// compared with a run on other operands.
double OperandTolerance(Precision precision);

// What an output must be: row-major [rows, channels].
struct Expected {
  int64_t channels = 1;
  std::vector<double> values;
  std::vector<Tolerance> tolerances;

  // The largest relative error in the 2-norm that is allowed.
  double NormBound() const;
};

struct LayerData;  // verify/difference.h

// Every element within its tolerance, and the 2-norm of the error within that of the typical
// errors. kInternal names the element that is furthest off, in units of its bound, and says how
// many are wrong and in which pattern. A NaN fails. With `layer`, of which the output was computed,
// the message tells more.
absl::Status CheckOutput(absl::Span<const float> output, const Expected& expected,
                         const LayerData* layer = nullptr);

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_BOUNDS_H_
