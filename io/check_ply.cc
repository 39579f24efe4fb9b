#include "io/check_ply.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace voxconv::io_internal {
namespace {

enum class PlyFormat { kAscii, kLittleEndian, kBigEndian };

struct PlyType {
  size_t size = 0;  // bytes in the binary formats
  bool is_float = false;
};

struct PlyProperty {
  std::optional<PlyType> list_count;  // set for lists
  PlyType value;
};

struct PlyElement {
  std::string name;
  int64_t rows = 0;
  std::vector<PlyProperty> properties;
};

struct PlyHeader {
  PlyFormat format = PlyFormat::kAscii;
  std::vector<PlyElement> elements;
};

std::optional<PlyType> ParseType(absl::string_view text) {
  struct Row {
    absl::string_view name, alias;
    PlyType type;
  };
  static constexpr Row kTypes[] = {
      {"char", "int8", {1, false}},    {"uchar", "uint8", {1, false}},
      {"short", "int16", {2, false}},  {"ushort", "uint16", {2, false}},
      {"int", "int32", {4, false}},    {"uint", "uint32", {4, false}},
      {"float", "float32", {4, true}}, {"double", "float64", {8, true}},
  };
  for (const Row& row : kTypes) {
    if (text == row.name || text == row.alias) return row.type;
  }
  return std::nullopt;
}

absl::string_view TakeLine(absl::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const absl::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return absl::StripTrailingAsciiWhitespace(line);
}

// Enters one header line; false when it is not one.
bool ParseHeaderLine(const std::vector<std::string>& words, PlyHeader& header) {
  if (words[0] == "comment" || words[0] == "obj_info") return true;
  if (words[0] == "format" && words.size() == 3) {
    if (words[1] == "binary_little_endian") header.format = PlyFormat::kLittleEndian;
    if (words[1] == "binary_big_endian") header.format = PlyFormat::kBigEndian;
    return absl::StartsWith(words[1], "binary_") == (header.format != PlyFormat::kAscii);
  }
  if (words[0] == "element" && words.size() == 3) {
    PlyElement& element = header.elements.emplace_back();
    element.name = words[1];
    return absl::SimpleAtoi(words[2], &element.rows) && element.rows >= 0;
  }
  if (words[0] != "property" || header.elements.empty()) return false;
  const bool is_list = words.size() == 5 && words[1] == "list";
  if (!is_list && words.size() != 3) return false;
  const std::optional<PlyType> value = ParseType(words[is_list ? 3 : 1]);
  PlyProperty property;
  if (is_list) property.list_count = ParseType(words[2]);
  if (!value.has_value() || (is_list && !property.list_count.has_value())) return false;
  property.value = *value;
  header.elements.back().properties.push_back(property);
  return true;
}

absl::StatusOr<PlyHeader> TakeHeader(absl::string_view& text, absl::string_view name) {
  if (TakeLine(text) != "ply") {
    return absl::InvalidArgumentError(absl::StrCat(name, ": is not a PLY file"));
  }
  PlyHeader header;
  while (!text.empty()) {
    const absl::string_view line = TakeLine(text);
    if (line == "end_header") return header;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (!words.empty() && !ParseHeaderLine(words, header)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": PLY header line '", absl::CEscape(line), "' is not understood"));
    }
  }
  return absl::DataLossError(absl::StrCat(name, ": PLY header is truncated (no end_header)"));
}

// Walks the body value by value, whatever its format.
class BodyCursor {
 public:
  BodyCursor(absl::string_view body, PlyFormat format) : body_(body), format_(format) {}

  // Passes one value and returns it where it is an integer (0 for a float); nullopt at the end.
  std::optional<int64_t> Take(PlyType type) {
    return format_ == PlyFormat::kAscii ? TakeText(type) : TakeBinary(type);
  }

 private:
  std::optional<int64_t> TakeText(PlyType type) {
    body_ = absl::StripLeadingAsciiWhitespace(body_);
    const auto* end = std::find_if(body_.begin(), body_.end(), absl::ascii_isspace);
    const absl::string_view word(body_.data(), static_cast<size_t>(end - body_.begin()));
    body_.remove_prefix(word.size());
    double real = 0;
    if (type.is_float) {
      return absl::SimpleAtod(word, &real) ? std::optional<int64_t>(0) : std::nullopt;
    }
    int64_t integer = 0;
    return absl::SimpleAtoi(word, &integer) ? std::optional<int64_t>(integer) : std::nullopt;
  }

  std::optional<int64_t> TakeBinary(PlyType type) {
    if (body_.size() < type.size) return std::nullopt;
    uint64_t value = 0;
    for (size_t i = 0; i < type.size && !type.is_float; ++i) {
      const size_t at = format_ == PlyFormat::kBigEndian ? i : type.size - 1 - i;
      value = (value << 8) | static_cast<uint8_t>(body_[at]);
    }
    body_.remove_prefix(type.size);
    return static_cast<int64_t>(value);
  }

  absl::string_view body_;
  PlyFormat format_;
};

bool TakeRow(BodyCursor& cursor, const PlyElement& element) {
  for (const PlyProperty& property : element.properties) {
    int64_t count = 1;
    if (property.list_count.has_value()) {
      const std::optional<int64_t> listed = cursor.Take(*property.list_count);
      if (!listed.has_value() || *listed < 0) return false;
      count = *listed;
    }
    for (int64_t i = 0; i < count; ++i) {
      if (!cursor.Take(property.value).has_value()) return false;
    }
  }
  return true;
}

}  // namespace

absl::Status CheckPly(absl::string_view bytes, absl::string_view name) {
  absl::string_view text = bytes;
  const absl::StatusOr<PlyHeader> header = TakeHeader(text, name);
  if (!header.ok()) return header.status();
  BodyCursor cursor(text, header->format);
  for (const PlyElement& element : header->elements) {
    if (element.properties.empty()) continue;
    for (int64_t row = 0; row < element.rows; ++row) {
      if (!TakeRow(cursor, element)) {
        return absl::DataLossError(absl::StrCat(name, ": truncated or damaged at '", element.name,
                                                "' row ", row, " of ", element.rows));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace voxconv::io_internal
