// SPDX-License-Identifier: Apache-2.0
// Arrays of text in .npy files: UCS-4 characters, padded with zeros to the length of the longest.
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/npy.h"

namespace voxconv {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);

// The header's text, and where the data begins.
absl::StatusOr<std::pair<absl::string_view, size_t>> HeaderOf(absl::string_view bytes) {
  constexpr size_t kVersionEnd = 8;
  if (!absl::StartsWith(bytes, kMagic) || bytes.size() < kVersionEnd + 4) {
    return absl::InvalidArgumentError("is not a .npy file");
  }
  const size_t length_bytes = bytes[6] == 1 ? 2 : 4;
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + kVersionEnd, length_bytes);
  const size_t begin = kVersionEnd + length_bytes;
  if (length > bytes.size() - begin) return absl::DataLossError("the header is cut off");
  return std::pair(bytes.substr(begin, length), begin + length);
}

// The number between `before` and `after` in the header; -1 if there is none.
int64_t NumberBetween(absl::string_view header, absl::string_view before, absl::string_view after) {
  const size_t begin = header.find(before);
  if (begin == absl::string_view::npos) return -1;
  const absl::string_view rest = header.substr(begin + before.size());
  int64_t number = -1;
  if (!absl::SimpleAtoi(rest.substr(0, rest.find(after)), &number)) return -1;
  return number;
}

void AppendUtf8(uint32_t code, std::string& text) {
  const auto byte = [&](uint32_t value) { text.push_back(static_cast<char>(value)); };
  if (code < 0x80) return byte(code);
  if (code < 0x800) {
    byte(0xc0 | code >> 6);
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3f));
  } else {
    byte(0xf0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3f));
    byte(0x80 | (code >> 6 & 0x3f));
  }
  byte(0x80 | (code & 0x3f));
}

absl::StatusOr<std::vector<std::string>> Parse(absl::string_view bytes) {
  VOXCONV_ASSIGN_OR_RETURN(const auto header, HeaderOf(bytes));
  constexpr int64_t kMost = int64_t{1} << 30;  // far above any list of names
  const int64_t length = NumberBetween(header.first, "'descr': '<U", "'");
  const int64_t texts = NumberBetween(header.first, "'shape': (", ",)");
  if (length < 0 || length > kMost || texts < 0 || texts > kMost) {
    return absl::InvalidArgumentError("is no array of texts; [n] of NumPy's '<U' is needed");
  }
  const absl::string_view data = bytes.substr(header.second);
  if (static_cast<int64_t>(data.size()) != texts * length * 4) {
    return absl::DataLossError(absl::StrCat(data.size(), " bytes of data; ", texts, " texts of ",
                                            length, " characters need ", texts * length * 4));
  }
  std::vector<std::string> result(texts);
  for (int64_t i = 0; i < texts * length; ++i) {
    uint32_t code = 0;
    std::memcpy(&code, data.data() + i * 4, 4);
    if (code > 0x10ffff) return absl::DataLossError(absl::StrCat("character ", code));
    if (code != 0) AppendUtf8(code, result[i / length]);
  }
  return result;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseNpyText(absl::string_view bytes,
                                                      absl::string_view name) {
  absl::StatusOr<std::vector<std::string>> texts = Parse(bytes);
  if (!texts.ok()) return StatusAt(name, texts.status());
  return texts;
}

}  // namespace voxconv
