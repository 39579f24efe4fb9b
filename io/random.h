#ifndef VOXCONV_IO_RANDOM_H_
#define VOXCONV_IO_RANDOM_H_

#include <cmath>
#include <cstdint>
#include <random>

namespace voxconv::io_internal {

// Seeded numbers that are the same on every platform: the standard fixes mt19937_64's sequence but
// not that of its distributions, and libm's last digits differ, so neither is used here.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // In [0, 1), a multiple of 2^-53.
  double Uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }

  // In [0, bound), bound > 0, without modulo bias.
  uint64_t Below(uint64_t bound) {
    const uint64_t rejected = (0 - bound) % bound;  // 2^64 mod bound
    uint64_t draw = engine_();
    while (draw < rejected) draw = engine_();
    return draw % bound;
  }

  // Mean 0, variance 1, bounded by 2*sqrt(3): the sum of four uniforms (Irwin-Hall).
  double Noise() {
    double sum = -2.0;
    for (int i = 0; i < 4; ++i) sum += Uniform();
    return sum * std::sqrt(3.0);
  }

 private:
  std::mt19937_64 engine_;
};

struct SinCos {
  double sin;
  double cos;
};

// Sine and cosine of an angle in turns (1 = 360 degrees), within 1e-15, from additions and
// multiplications alone and hence the same bits everywhere (build without contraction to FMA).
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

#endif  // VOXCONV_IO_RANDOM_H_
