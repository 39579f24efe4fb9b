// SPDX-License-Identifier: Apache-2.0
// Conversions of the 16-bit storage types on the host. Values are bits in uint16_t, because the
// supported compilers have no common type for them.
#ifndef VOXCONV_CORE_HALF_H_
#define VOXCONV_CORE_HALF_H_

#include <bit>
#include <cstdint>

namespace voxconv {

// To IEEE 754 binary16, rounded to nearest, ties to even. Overflow gives infinity. NaN stays NaN.
constexpr uint16_t FloatToHalfBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // from 65520
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal, a multiple of 2^-24
    // Adding 0.5 aligns the float's last place with 2^-24, and the addition itself rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t odd = magnitude >> 13 & 1u;
  return static_cast<uint16_t>(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

// The inverse. Exact.
constexpr float HalfBitsToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t float_exponent = exponent == 0x1fu ? 0xffu : exponent + 127 - 15;
  return std::bit_cast<float>(sign | float_exponent << 23 | mantissa << 13);
}

// To bfloat16, with the same rounding.
constexpr uint16_t FloatToBf16Bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// The inverse. Exact.
constexpr float Bf16BitsToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace voxconv

#endif  // VOXCONV_CORE_HALF_H_
