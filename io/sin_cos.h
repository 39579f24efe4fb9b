// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_SIN_COS_H_
#define VOXCONV_IO_SIN_COS_H_

#include <cmath>
#include <cstdint>

namespace voxconv::io_internal {

struct SinCos {
  double sin;
  double cos;
};

// Sine and cosine of an angle in turns (1 turn is 360 degrees), within 1e-15. Uses only additions,
// multiplications and divisions, so that it gives the same bits on every platform; the last digits
// of libm's functions differ. Must be compiled without contraction to FMA.
inline SinCos SinCosTurns(double turns) {
  const double quarter = std::floor(turns * 4.0 + 0.5);
  const double x = (turns - quarter * 0.25) * 6.283185307179586476925;
  const double x2 = x * x;
  double s = 1.0;
  double c = 1.0;
  for (int k = 16; k >= 2; k -= 2) {
    s = 1.0 - s * x2 / static_cast<double>(k * (k + 1));
    c = 1.0 - c * x2 / static_cast<double>(k * (k - 1));
  }
  s *= x;
  switch (static_cast<int64_t>(quarter) & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

}  // namespace voxconv::io_internal

#endif  // VOXCONV_IO_SIN_COS_H_
