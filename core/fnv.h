// FNV-1a, 64 bits: the same value on every machine and in every run, which neither std::hash nor
// absl::Hash promises. For names and for keys of results; it resists no attacker.
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
  // Its four bytes, the lowest first, whatever the machine's byte order.
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
