// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_REFERENCE_CPU_REQUIRE_H_
#define VOXCONV_REFERENCE_CPU_REQUIRE_H_

// The oracle's error policy, for every header of this folder: a malformed
// argument throws std::invalid_argument. Exceptions are allowed here, and only
// here, because the oracle serves tests and verification and may not depend on
// the status types of what it judges.

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <stdexcept>

namespace voxconv::reference {

// Throws std::invalid_argument with the concatenation of `message` unless `ok`.
// Formats the message only then, because it is called for every row.
template <typename... Parts>
void Require(bool ok, const Parts&... message) {
  if (ok) return;
  std::ostringstream text;
  (text << ... << message);
  throw std::invalid_argument(text.str());
}

inline void RequireSize(const char* name, size_t size, int64_t rows, int64_t columns) {
  const bool ok =
      rows >= 0 && columns >= 0 && size == static_cast<size_t>(rows) * static_cast<size_t>(columns);
  Require(ok, name, " has ", size, " elements; it must have ", rows, " x ", columns);
}

}  // namespace voxconv::reference

#endif  // VOXCONV_REFERENCE_CPU_REQUIRE_H_
