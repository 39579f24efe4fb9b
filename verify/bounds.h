// How far an honest kernel may be from the exact sum, element by element. Derived, not tuned.
//
// All operands are representable in the case's dtype, and the reference multiplies the very same
// numbers. Two 11-bit significands (f16, tf32) or 8-bit ones (bf16) have an exact product in f32.
// Hence a kernel errs only where it adds in f32 and where it stores a result in 16 bits.
//
// Operands of tf32 need a word. A tensor core cuts the low 13 bits of an operand off, and our
// kernels round them to nearest before. Both leave a number alone that has none of these bits. The
// bound therefore holds for either, and for a kernel that multiplies in full f32.
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
#include "core/types.h"

namespace voxconv::verify {

// `values` as `dtype` holds them, widened: f16 and bf16 to nearest even, tf32 to nearest with ties
// away from zero. f32 stays as it is.
std::vector<float> RoundedTo(Precision dtype, std::vector<float> values);

// Relative error of storing in `dtype` what was computed in f32: 0 for f32 and tf32.
double StorageUnit(Precision dtype);

// The exact sum of one output element, and what its bound is made of.
struct ExactSum {
  double value = 0;
  double magnitude = 0;  // sum |x||w|
  double spread = 0;     // sqrt(sum x^2 w^2)
  // sum |p| and sqrt(sum p^2) over the pairs' products p = x[p] . w[k]; needed where a kernel
  // rounds these.
  double partial_magnitude = 0, partial_spread = 0;
  int64_t pairs = 0;  // of the output row
};

// Absolute errors of one element. No honest kernel passes `element`. `typical` is less than that:
// about twice the root mean square or more, for the 2-norm over all elements.
struct Tolerance {
  double element = 0;
  double typical = 0;
};

// Of the f32 sum, before it is stored. `rounds_partial_sums`: x[p] . w[k] is stored in `dtype`.
Tolerance SumTolerance(Precision dtype, const ExactSum& sum, int64_t c_in,
                       bool rounds_partial_sums);

// Of `value` that is known within `before` and stored in `dtype`.
Tolerance StoredTolerance(Precision dtype, double value, const Tolerance& before);

// Of sum * scale + shift + residual, which are f32 but the residual, in f32.
Tolerance AffineTolerance(double sum, double scale, double shift, double residual,
                          const Tolerance& before);

// The 2-norm of the error over that of the output, where no reference is at hand: for features and
// weights with random signs, where the 2-norm of the output is about that of the spreads.
// `reduction`: the most products of an output. `stores`: how often an output is rounded to the
// dtype; the products of all pairs, which are about as large together as their sum, count as one.
double RelativeTolerance(Precision dtype, int64_t reduction, int stores = 1);

// The same of rounding features and weights to `dtype`, by truncation in tf32: for what is compared
// with a run on other operands.
double OperandTolerance(Precision dtype);

// What an output must be: row-major [rows, channels].
struct Expected {
  int64_t channels = 1;
  std::vector<double> values;
  std::vector<Tolerance> tolerances;

  // The largest relative error in the 2-norm that is allowed.
  double NormBound() const;
};

// Every element within its tolerance, and the 2-norm of the error within that of the typical
// errors. kInternal names the element that is furthest off, in units of its bound. A NaN fails.
absl::Status CheckOutput(absl::Span<const float> output, const Expected& expected);

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_BOUNDS_H_
