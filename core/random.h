// SPDX-License-Identifier: Apache-2.0
// Seeded random numbers that are the same on every platform. The standard fixes the sequence of
// mt19937_64, but not those of its distributions, so that these are not used here.
#ifndef VOXCONV_CORE_RANDOM_H_
#define VOXCONV_CORE_RANDOM_H_

#include <cmath>
#include <cstdint>
#include <random>

namespace voxconv {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // Uniform in [0, 1), a multiple of 2^-53.
  double Uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }

  // Uniform in [0, bound), without modulo bias. `bound` must be > 0.
  uint64_t Below(uint64_t bound) {
    const uint64_t rejected = (0 - bound) % bound;  // 2^64 mod bound
    uint64_t draw = engine_();
    while (draw < rejected) draw = engine_();
    return draw % bound;
  }

  // The sum of four uniform numbers (Irwin-Hall), with mean 0, variance 1 and magnitude at most
  // 2 * sqrt(3).
  double Noise() {
    double sum = -2.0;
    for (int i = 0; i < 4; ++i) sum += Uniform();
    return sum * std::sqrt(3.0);
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_RANDOM_H_
