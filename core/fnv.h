// SPDX-License-Identifier: Apache-2.0
// The hash FNV-1a of 64 bits. It has the same value on every machine and in every run; std::hash
// and absl::Hash do not promise that. For names and keys of results. Does not resist attacks.
#ifndef VOXCONV_CORE_FNV_H_
#define VOXCONV_CORE_FNV_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace voxconv {

class Fnv1a {
 public:
  constexpr void AddByte(uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3; }
  constexpr void AddText(absl::string_view text) {
    for (const char c : text) AddByte(static_cast<uint8_t>(c));
  }
  // Adds the four bytes of `word`, the lowest first, on every machine.
  constexpr void AddWord(uint32_t word) {
    for (int shift = 0; shift < 32; shift += 8) AddByte(static_cast<uint8_t>(word >> shift));
  }
  constexpr uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

constexpr uint64_t HashFnv1a(absl::string_view text) {
  Fnv1a hash;
  hash.AddText(text);
  return hash.value();
}

}  // namespace voxconv

#endif  // VOXCONV_CORE_FNV_H_
