// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_CORE_INTEGER_H_
#define VOXCONV_CORE_INTEGER_H_

#include <cstdint>

namespace voxconv {

// a / b, rounded up. Needs a >= 0, b > 0 and a + b < 2^63.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace voxconv

#endif  // VOXCONV_CORE_INTEGER_H_
