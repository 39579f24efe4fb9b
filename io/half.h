#ifndef VOXCONV_IO_HALF_H_
#define VOXCONV_IO_HALF_H_

#include <bit>
#include <cstdint>

namespace voxconv::io_internal {

// IEEE 754 binary16 bits -> float; exact for every input. The compilers supported here have no
// common half type, and io/ may not depend on core/.
constexpr float HalfBitsToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t float_exponent = exponent == 0x1fu ? 0xffu : exponent + 127 - 15;
  return std::bit_cast<float>(sign | (float_exponent << 23) | (mantissa << 13));
}

}  // namespace voxconv::io_internal

#endif  // VOXCONV_IO_HALF_H_
